-- Attempt an ended run again, with the same inputs, in its place in the chain. One whose failure has
-- stopped the chain starts at once: the others go on waiting for its success.
--
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS leases     zset  runs by the time in which they have to be claimed or renewed (ms)
-- KEYS templates  hash  template id -> message and queue as JSON
-- KEYS outbox     zset  runs to be published
-- KEYS policies   hash  entry -> policy as JSON
-- KEYS ended      zset  runs by the time they ended (ms)
-- KEYS dead       zset  dead letters by the time they died (ms)
-- KEYS letters    hash  run id -> what is known of its failure, as JSON
-- KEYS active     zset  the entry's active runs
-- KEYS chain      zset  the entry's waiting runs
-- KEYS stopped    hash  entry -> runs whose failure has stopped its chain, parted by blanks
-- KEYS unreleased zset  lanes whose release stopped at its budget; the leader goes on with them
-- ARGV run_id, db
-- ARGV by               who asked for it, for the record, or ""
-- ARGV now_ms           0 in production
-- RETURNS "replayed", "in_flight", "unknown", or "lost" when its message is not kept any more
local id, now = ARGV[1], server_now(ARGV[4])
local stored = redis.call('HGET', KEYS[1], id)
local run = read_run(stored)
if not run then return 'unknown' end
if run.state == 'queued' or run.state == 'running' or run.state == 'waiting' then return 'in_flight' end
if redis.call('HEXISTS', KEYS[3], run.template) == 0 then return 'lost' end

-- A backfill that is over has no lane any more: the run waits with its entry's others.
run.lane = nil
remember(run, run.state, run.finished, run.error)
run.state, run.attempt, run.failures, run.losses = 'waiting', run.attempt + 1, 0, 0
run.finished, run.error, run.started, run.replaced = nil, nil, nil, nil
run.replays, run.replayed = (run.replays or 0) + 1, now
if ARGV[3] ~= '' then run.by = ARGV[3] end
redis.call('HSET', KEYS[1], id, cjson.encode(run))
redis.call('ZREM', KEYS[6], id)
redis.call('ZREM', KEYS[7], id)
redis.call('HDEL', KEYS[8], id)
local policy = cjson.decode(redis.call('HGET', KEYS[5], lane_of(run)) or '{"capacity":1}')
local keys = {
  ledger = KEYS[1], leases = KEYS[2], templates = KEYS[3], outbox = KEYS[4], active = KEYS[9], chain = KEYS[10], clock = now,
  stopped = KEYS[11], lane = run.entry, unreleased = KEYS[12],
}
if stops(KEYS[11], run.entry, id) then
  redis.call('ZADD', KEYS[9], run.slot + run.schedule / 1000, id)
  dispatch(keys, id, run, tonumber(ARGV[2]), now)
else
  redis.call('ZADD', KEYS[10], run.slot + run.schedule / 1000, id)
  release(keys, policy.capacity, tonumber(ARGV[2]), now)
end
return 'replayed'
