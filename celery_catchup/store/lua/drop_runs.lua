-- Forget runs of an entry on request.
--
-- KEYS ledger   hash  run id -> run as JSON
-- KEYS runs     zset  runs of all entries by slot (ms)
-- KEYS ended    zset  ended runs by end (ms)
-- KEYS dead     zset  dead letters by end (ms)
-- KEYS letters  hash  run id -> failure as JSON
-- KEYS notes    hash  run id -> notes as JSON
-- KEYS templates hash template id -> message and queue as JSON; the template of a single run goes with it
-- KEYS own      zset  the entry's runs by slot (ms)
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- ARGV change           the record of this change, for the audit trail
-- ARGV ...            ids of ended runs of this entry
-- RETURNS 1
record_change()
for i = first_arg, #ARGV do forget_run(ARGV[i]) end
return 1
