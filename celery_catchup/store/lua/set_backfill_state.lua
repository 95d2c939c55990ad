-- Pause, resume, cancel or complete a backfill; an ended backfill stays as it is.
--
-- A paused backfill starts no run; resumed, it goes on at once. Waiting runs of a cancelled backfill are revoked.
--
-- KEYS backfills  hash    backfill id -> backfill as JSON
-- KEYS version    string  counter of changes from outside
-- KEYS policies   hash    lane -> policy as JSON
-- KEYS ledger     hash    run id -> run as JSON
-- KEYS ended      zset    ended runs by end (ms)
-- KEYS templates  hash    template id -> message and queue, or base and inputs, as JSON
-- KEYS outbox     zset    runs to publish
-- KEYS leases     zset    active runs by lease expiry (ms)
-- KEYS active     zset    the lane's active runs
-- KEYS chain      zset    the lane's waiting runs
-- KEYS unreleased zset    lanes whose release stopped at its budget; the leader continues them
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- KEYS meta       hash the limit `max_active`
-- KEYS catchup_active zset catch-up and backfill runs that are queued or running, if there is a limit
-- KEYS catchup_waiting zset lanes that wait for a place among them
-- ARGV id
-- ARGV state              running, paused, cancelled or, by the leader, completed
-- ARGV lane               name of the backfill's lane
-- ARGV db                 number of this database
-- ARGV change           the record of this change, for the audit trail, or "" if the leader makes it
-- RETURNS its state now, or false if there is no such backfill
local stored = redis.call('HGET', keys.backfills, args.id)
if not stored then return false end
local backfill, state, now = cjson.decode(stored), args.state, server_now('0')
if backfill.state ~= 'running' and backfill.state ~= 'paused' then return backfill.state end
if state == 'completed' and (redis.call('ZCARD', keys.active) > 0 or redis.call('ZCARD', keys.chain) > 0) then
  return backfill.state
end

record_change()
backfill.state = state
if state == 'cancelled' or state == 'completed' then backfill.ended = now end
redis.call('HSET', keys.backfills, args.id, cjson.encode(backfill))
redis.call('INCR', keys.version)
local policy = read_json(redis.call('HGET', keys.policies, args.lane))
policy.capacity, policy.cancelled = state == 'running' and backfill.max_active or 0, state == 'cancelled' or nil
redis.call('HSET', keys.policies, args.lane, cjson.encode(policy))
keys.lane, sending.at = args.lane, now
if state == 'cancelled' then
  revoke_waiting(now)
elseif state == 'running' then
  release(backfill.max_active, now)
end
if state == 'completed' then redis.call('HDEL', keys.policies, args.lane) end
return state
