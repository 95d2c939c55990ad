-- Pause, resume or cancel a backfill; one that has ended stays as it is.
--
-- A paused one starts no run, whoever asks; resumed, it goes on at once. What waits in a cancelled
-- one will not run.
--
-- KEYS backfills  hash    backfill id -> backfill as JSON
-- KEYS version    string  grows with every change from outside
-- KEYS policies   hash    lane -> policy as JSON
-- KEYS ledger     hash    run id -> run as JSON
-- KEYS ended      zset    runs by the time they ended (ms)
-- KEYS templates  hash    template id -> message and queue as JSON
-- KEYS outbox     zset    runs to be published
-- KEYS leases     zset    runs by the time in which they have to be claimed or renewed (ms)
-- KEYS active     zset    the lane's active runs
-- KEYS chain      zset    the lane's waiting runs
-- KEYS unreleased zset    lanes whose release stopped at its budget; the leader goes on with them
-- ARGV id
-- ARGV state              running, paused, cancelled or, by the leader, completed
-- ARGV lane               name of the backfill's lane
-- ARGV db                 number of the database we are in
-- RETURNS the state it is in now, or false when there is no such backfill
local stored = redis.call('HGET', KEYS[1], ARGV[1])
if not stored then return false end
local backfill, state, now = cjson.decode(stored), ARGV[2], server_now('0')
if backfill.state ~= 'running' and backfill.state ~= 'paused' then return backfill.state end
if state == 'completed' and (redis.call('ZCARD', KEYS[9]) > 0 or redis.call('ZCARD', KEYS[10]) > 0) then
  return backfill.state
end

backfill.state = state
if state == 'cancelled' or state == 'completed' then backfill.ended = now end
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(backfill))
redis.call('INCR', KEYS[2])
local policy = cjson.decode(redis.call('HGET', KEYS[3], ARGV[3]) or '{}')
policy.capacity, policy.cancelled = state == 'running' and backfill.max_active or 0, state == 'cancelled' or nil
redis.call('HSET', KEYS[3], ARGV[3], cjson.encode(policy))
local keys = {
  ledger = KEYS[4], ended = KEYS[5], templates = KEYS[6], outbox = KEYS[7], leases = KEYS[8],
  active = KEYS[9], chain = KEYS[10], clock = now, lane = ARGV[3], unreleased = KEYS[11],
}
if state == 'cancelled' then
  revoke_waiting(keys, now)
elseif state == 'running' then
  release(keys, backfill.max_active, tonumber(ARGV[4]), now)
end
if state == 'completed' then redis.call('HDEL', KEYS[3], ARGV[3]) end
return state
