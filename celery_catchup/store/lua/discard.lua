-- Remove a dead letter; the run stays in the ledger as failed. If it had stopped its chain, the chain goes on.
--
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS dead       zset  dead letters by end (ms)
-- KEYS letters    hash  run id -> failure as JSON
-- KEYS stopped    hash  entry -> runs whose failure stopped its chain, separated by blanks
-- KEYS policies   hash  entry -> policy as JSON
-- KEYS templates  hash  template id -> message and queue, or base and inputs, as JSON
-- KEYS outbox     zset  runs to publish
-- KEYS leases     zset  active runs by lease expiry (ms)
-- KEYS unreleased zset  lanes whose release stopped at its budget; the leader continues them
-- KEYS meta       hash the limit `max_active`
-- KEYS catchup_active zset catch-up and backfill runs that are queued or running, if there is a limit
-- KEYS catchup_waiting zset lanes that wait for a place among them
-- KEYS active     zset  the entry's active runs
-- KEYS chain      zset  the entry's waiting runs
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- ARGV run_id, db
-- ARGV entry            the lane of the active and waiting runs
-- ARGV change           the record of this change, for the audit trail, or "" if the leader makes it
-- RETURNS 1, or 0 if it is not a dead letter and has stopped no chain
local id, now = args.run_id, server_now('0')
local run = load_run(id)
if not run or run.entry ~= args.entry then return 0 end
local dead = run.state == 'dead'
if is_open(run) or not (go_on(run.entry, id) or dead) then return 0 end
record_change()
if dead then
  run.state = 'failed'
  store_run(id, run)
  redis.call('ZREM', keys.dead, id)
  redis.call('HDEL', keys.letters, id)
end
keys.lane, sending.at = run.entry, now
release(policy_of(run.entry).capacity, now)
return 1
