-- Pause, resume or cancel a backfill; one that has ended stays as it is.
--
-- KEYS backfills  hash    backfill id -> backfill as JSON
-- KEYS version    string  grows with every change from outside
-- ARGV id
-- ARGV state              running, paused or cancelled
-- RETURNS the state it is in now, or false when there is no such backfill
local stored = redis.call('HGET', KEYS[1], ARGV[1])
if not stored then return false end
local backfill = cjson.decode(stored)
if backfill.state == 'running' or backfill.state == 'paused' then
  backfill.state = ARGV[2]
  redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(backfill))
  redis.call('INCR', KEYS[2])
end
return backfill.state
