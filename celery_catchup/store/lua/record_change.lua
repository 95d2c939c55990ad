-- Write the record of a change that several commands make.
--
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- ARGV change           the record of this change, for the audit trail
-- RETURNS 1
record_change()
return 1
