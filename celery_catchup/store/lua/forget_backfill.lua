-- Forget a backfill that has ended, and its lane.
--
-- KEYS leader     hash  owner, epoch
-- KEYS backfills  hash  backfill id -> backfill as JSON
-- KEYS policies   hash  lane -> policy as JSON
-- KEYS active     zset  the lane's active runs
-- KEYS chain      zset  the lane's waiting runs
-- ARGV owner, epoch
-- ARGV id
-- ARGV lane
-- RETURNS 1, 0 if it has not ended or still has runs, or false if another beat leads
if not leads() then return false end
local backfill = read_json(redis.call('HGET', keys.backfills, args.id))
if backfill.state == 'running' or backfill.state == 'paused' or redis.call('EXISTS', keys.active, keys.chain) > 0 then return 0 end
redis.call('HDEL', keys.backfills, args.id)
redis.call('HDEL', keys.policies, args.lane)
return 1
