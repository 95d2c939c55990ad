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
local id, now = args.run_id, server_now('0')
local run = load_run(id)
if not run or run.entry ~= args.entry then return 0 end
local dead = run.state == 'dead'
if is_open(run) or not (go_on(run.entry, id) or dead) then return 0 end
if dead then
  run.state = 'failed'
  store_run(id, run)
  redis.call('ZREM', keys.dead, id)
  redis.call('HDEL', keys.letters, id)
end
keys.lane, sending.at = run.entry, now
release(policy_of(run.entry).capacity, now)
return 1
