-- Take a run off the dead letters; it stays in the ledger as failed. Its chain goes on, when it had stopped it.
--
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS dead       zset  dead letters by the time they died (ms)
-- KEYS letters    hash  run id -> what is known of its failure, as JSON
-- KEYS stopped    hash  entry -> runs whose failure has stopped its chain, parted by blanks
-- KEYS policies   hash  entry -> policy as JSON
-- KEYS templates  hash  template id -> message and queue as JSON
-- KEYS outbox     zset  runs to be published
-- KEYS leases     zset  runs by the time in which they have to be claimed or renewed (ms)
-- KEYS unreleased zset  lanes whose release stopped at its budget; the leader goes on with them
-- KEYS active     zset  the entry's active runs
-- KEYS chain      zset  the entry's waiting runs
-- ARGV run_id, db
-- ARGV entry            whose active and waiting runs are given
-- RETURNS 1, or 0 when it is no dead letter and has stopped nothing
local id, now = ARGV[1], server_now('0')
local run = read_run(redis.call('HGET', KEYS[1], id))
if not run or run.entry ~= ARGV[3] then return 0 end
local dead, waits = run.state == 'dead', run.state == 'queued' or run.state == 'running' or run.state == 'waiting'
if waits or not (go_on(KEYS[4], run.entry, id) or dead) then return 0 end
if dead then
  run.state = 'failed'
  redis.call('HSET', KEYS[1], id, cjson.encode(run))
  redis.call('ZREM', KEYS[2], id)
  redis.call('HDEL', KEYS[3], id)
end
local policy = cjson.decode(redis.call('HGET', KEYS[5], run.entry) or '{"capacity":1}')
local keys = {
  ledger = KEYS[1], templates = KEYS[6], outbox = KEYS[7], leases = KEYS[8], active = KEYS[10], chain = KEYS[11],
  stopped = KEYS[4], lane = run.entry, unreleased = KEYS[9], clock = now,
}
release(keys, policy.capacity, tonumber(ARGV[2]), now)
return 1
