-- Create a backfill; the leader begins with its next tick.
--
-- KEYS backfills  hash    backfill id -> backfill as JSON
-- KEYS version    string  counter of changes from outside
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- ARGV id
-- ARGV backfill           as JSON
-- ARGV change           the record of this change, for the audit trail
-- RETURNS 1, or 0 if there is one with this id already
if redis.call('HEXISTS', keys.backfills, args.id) == 1 then return 0 end
record_change()
redis.call('HSET', keys.backfills, args.id, args.backfill)
redis.call('INCR', keys.version)
return 1
