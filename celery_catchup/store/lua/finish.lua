-- Record the end of a run, and release the next of its chain in the same step.
--
-- A failed run with attempts left is retried after the policy's delay, in its place; with none left, or after a
-- permanent failure, it is dead. Idempotent: ending an ended run changes nothing. The report of a worker that has
-- lost its lease to another is refused.
--
-- KEYS ledger     hash    run id -> run as JSON
-- KEYS leases     zset    active runs by lease expiry (ms)
-- KEYS templates  hash    template id -> message and queue, or base and inputs, as JSON
-- KEYS outbox     zset    runs to publish
-- KEYS policies   hash    entry -> policy as JSON
-- KEYS retries    zset    failed runs by next attempt (ms)
-- KEYS ended      zset    ended runs by end (ms)
-- KEYS dead       zset    dead letters by end (ms)
-- KEYS letters    hash    run id -> failure as JSON
-- KEYS paused     hash    entry -> pause as JSON
-- KEYS version    string  counter of changes from outside
-- KEYS scheduler  hash    the scheduler's watermark
-- KEYS manual     hash    entry -> latest manual start and success
-- KEYS hours      hash    hourly counts
-- KEYS last_success hash  entry -> when a run of it last succeeded (ms)
-- KEYS meta       hash    schema version of the stored state
-- KEYS active     zset    the lane's active runs
-- KEYS chain      zset    the lane's waiting runs
-- KEYS stopped    hash    entry -> runs whose failure stopped its chain, separated by blanks
-- KEYS unreleased zset    lanes whose release stopped at its budget; the leader continues them
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- KEYS catchup_active zset catch-up and backfill runs that are queued or running, if there is a limit
-- KEYS catchup_waiting zset lanes that wait for a place among them
-- ARGV run_id
-- ARGV owner              random per execution; "" for a message that never started (revoked, expired)
-- ARGV state              succeeded, failed or revoked
-- ARGV error              the error in one line, or ""
-- ARGV letter             more about the failure as JSON, or ""
-- ARGV lane               the lane of the active and waiting runs
-- ARGV db                 number of this database
-- ARGV now_ms             0 for the server's clock
-- ARGV schema             the newest schema that the worker knows
-- ARGV change           the record of this change, for the audit trail, or "" if a worker reports the end
-- RETURNS {"recorded", run as JSON, [id, run and template as JSON of each run released into the outbox],
--         [ids released and pushed], [other lanes that can have the place]}; only {"recorded"} for a success that
--         releases nothing; {"superseded"}, {"ended"}, {"unknown"}, {"elsewhere", lane}, or {"newer", schema}
local id, owner, state = args.run_id, args.owner, args.state
local newer = newer_schema()
if newer then return { 'newer', newer } end
local run = load_run(id)
if not run then return { 'unknown' } end
if not is_open(run) then return { 'ended' } end
if lane_of(run) ~= args.lane then return { 'elsewhere', lane_of(run) } end
if owner ~= '' and run.owner ~= owner then return { 'superseded' } end
if owner == '' and run.state == 'running' then return { 'superseded' } end

local now = server_now(args.now_ms)
-- An expired copy of an earlier message does not end a run whose latest message has not expired.
local later = run.expires and now < run.expires or redis.call('ZSCORE', keys.outbox, id)
if owner == '' and args.error == 'expired' and later then return { 'superseded' } end
record_change()
local policy = policy_of(lane_of(run))
keys.lane, sending.at, sending.by_worker = args.lane, now, true
if args.error ~= '' then run.error = args.error end
if args.letter ~= '' then redis.call('HSET', keys.letters, id, args.letter) end
if state == 'failed' and run.replaced then state = 'revoked' end
if state == 'failed' then
  run.failures = (run.failures or 0) + 1
  tally(keys.hours, now, { failed = 1 })
  count_up({ failed = 1 })
  local due = next_attempt(run, policy, read_json(args.letter ~= '' and args.letter).category, now)
  if due then
    remember(run, 'failed', now, run.error)
    run.state, run.owner, run.attempt = 'waiting', nil, run.attempt + 1
    local encoded = store_run(id, run)
    redis.call('ZREM', keys.leases, id)
    redis.call('ZADD', keys.retries, due, id)
    if not takes_place(run) then return { 'recorded', encoded, {}, {}, {} } end
    redis.call('ZREM', keys.catchup_active, id)
    return { 'recorded', encoded, {}, {}, lanes_with_place() }
  end
  state = 'dead'
end
if state == 'succeeded' then
  run.error = nil
  redis.call('HDEL', keys.letters, id)
  redis.call('HSET', keys.last_success, run.entry, string.format('%.0f', now))
end
if state == 'succeeded' and run.trigger == 'manual' then
  local manual = read_json(redis.call('HGET', keys.manual, run.entry))
  manual.success = math.max(manual.success or 0, run.created)
  redis.call('HSET', keys.manual, run.entry, cjson.encode(manual))
  redis.call('INCR', keys.version)
end
local encoded = conclude(id, run, state, policy, now)
release(policy.capacity, now)
local lanes = takes_place(run) and lanes_with_place() or {}
if state == 'succeeded' and #sending.unpublished + #sending.pushed + #lanes == 0 then return { 'recorded' } end
return { 'recorded', encoded, sending.unpublished, sending.pushed, lanes }
