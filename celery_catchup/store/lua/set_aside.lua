-- Rename a key that another program has written, so that one of the right type can take its place.
--
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms); one of them may be that key
-- KEYS ...                  the key, and its new name
-- ARGV change               the record of this change, for the audit trail
-- RETURNS 1
redis.call('RENAME', KEYS[first_key], KEYS[first_key + 1])
-- A damaged trail cannot take the record of its own repair.
pcall(function() record_change() end)
return 1
