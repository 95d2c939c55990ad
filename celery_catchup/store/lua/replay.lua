-- Attempt an ended run again, with the same inputs, in its place in the chain. A run whose failure has stopped the
-- chain starts at once: the others wait for its success.
--
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS leases     zset  active runs by lease expiry (ms)
-- KEYS templates  hash  template id -> message and queue, or base and inputs, as JSON
-- KEYS outbox     zset  runs to publish
-- KEYS policies   hash  entry -> policy as JSON
-- KEYS ended      zset  ended runs by end (ms)
-- KEYS dead       zset  dead letters by end (ms)
-- KEYS letters    hash  run id -> failure as JSON
-- KEYS active     zset  the entry's active runs
-- KEYS chain      zset  the entry's waiting runs
-- KEYS stopped    hash  entry -> runs whose failure stopped its chain, separated by blanks
-- KEYS unreleased zset  lanes whose release stopped at its budget; the leader continues them
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- KEYS meta       hash the limit `max_active`
-- KEYS catchup_active zset catch-up and backfill runs that are queued or running, if there is a limit
-- KEYS catchup_waiting zset lanes that wait for a place among them
-- ARGV run_id, db
-- ARGV by               the person or program, or ""
-- ARGV now_ms           0 for the server's clock
-- ARGV change           the record of this change, for the audit trail
-- RETURNS "replayed", "in_flight", "unknown", or "lost" if its message is not kept any more
local id, now = args.run_id, server_now(args.now_ms)
local run = load_run(id)
if not run then return 'unknown' end
if is_open(run) then return 'in_flight' end
if redis.call('HEXISTS', keys.templates, run.template) == 0 then return 'lost' end

record_change()
-- An ended backfill has no lane any more: the run waits with its entry's others.
run.lane = nil
remember(run, run.state, run.finished, run.error)
run.state, run.attempt, run.failures, run.losses = 'waiting', run.attempt + 1, 0, 0
run.finished, run.error, run.started, run.replaced = nil, nil, nil, nil
run.replays, run.replayed = (run.replays or 0) + 1, now
if args.by ~= '' then run.by = args.by end
store_run(id, run)
redis.call('ZREM', keys.ended, id)
redis.call('ZREM', keys.dead, id)
redis.call('HDEL', keys.letters, id)
keys.lane, sending.at = run.entry, now
local capacity, free = policy_of(run.entry).capacity, not takes_place(run)
if (stops(run.entry, id) and (free or has_place())) or (free and capacity < 0) then
  start(id, run, place_of(run), now)
else
  redis.call('ZADD', keys.chain, place_of(run), id)
  release(capacity, now)
end
return 'replayed'
