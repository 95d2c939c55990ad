-- Record how a run ended, and release the next of its chain in the same step.
--
-- A failure with attempts left is tried again after the policy's delay, in its place; with none
-- left, or when it is permanent, the run is dead. Idempotent: ending an ended run changes nothing.
-- A worker whose lease was taken by another is refused: what it reports did not happen, as far as
-- the ledger is concerned.
--
-- KEYS ledger     hash    run id -> run as JSON
-- KEYS leases     zset    runs by the time in which they have to be claimed or renewed (ms)
-- KEYS templates  hash    template id -> message and queue as JSON
-- KEYS outbox     zset    runs to be published
-- KEYS policies   hash    entry -> policy as JSON
-- KEYS retries    zset    failed runs by the time of their next attempt (ms)
-- KEYS ended      zset    runs by the time they ended (ms)
-- KEYS dead       zset    dead letters by the time they died (ms)
-- KEYS letters    hash    run id -> what is known of its failure, as JSON
-- KEYS paused     hash    entry -> since when it is paused
-- KEYS version    string  grows with every change from outside
-- KEYS scheduler  hash    the scheduler's watermark
-- KEYS manual     hash    entry -> start of its latest manual run, and of the latest that succeeded
-- KEYS hours      hash    what happened in each hour
-- KEYS meta       hash    schema version of the stored state
-- KEYS active     zset    the lane's active runs
-- KEYS chain      zset    the lane's waiting runs
-- KEYS stopped    hash    entry -> runs whose failure has stopped its chain, parted by blanks
-- KEYS unreleased zset    lanes whose release stopped at its budget; the leader goes on with them
-- ARGV run_id
-- ARGV owner              who executes it; "" for a message that never started (revoked, expired)
-- ARGV state              succeeded, failed or revoked
-- ARGV error              what went wrong, in a line, or ""
-- ARGV letter             more about the failure as JSON, or ""
-- ARGV lane               whose active and waiting runs are given
-- ARGV db                 number of the database we are in
-- ARGV now_ms             0 in production
-- ARGV schema             the newest version of the stored state that the worker knows
-- RETURNS {"recorded", run as JSON, [ids released into the outbox], [ids released and pushed]}, {"superseded"},
--         {"ended"}, {"unknown"}, {"elsewhere", lane}, or {"newer", schema}
local id, owner, state = ARGV[1], ARGV[2], ARGV[3]
local newer = newer_schema(KEYS[15], ARGV[9])
if newer then return { 'newer', newer } end
local stored = redis.call('HGET', KEYS[1], id)
local run = read_run(stored)
if not run then return { 'unknown' } end
if run.state ~= 'queued' and run.state ~= 'running' and run.state ~= 'waiting' then return { 'ended' } end
if lane_of(run) ~= ARGV[6] then return { 'elsewhere', lane_of(run) } end
if owner ~= '' and run.owner ~= owner then return { 'superseded' } end
if owner == '' and run.state == 'running' then return { 'superseded' } end

local now = server_now(ARGV[8])
-- An expired copy of an earlier message does not end a run whose latest message has not expired.
local later = run.expires and now < run.expires or redis.call('ZSCORE', KEYS[4], id)
if owner == '' and ARGV[4] == 'expired' and later then return { 'superseded' } end
local policy = cjson.decode(redis.call('HGET', KEYS[5], lane_of(run)) or '{"capacity":1,"max_attempts":1,"retry_delay_ms":0}')
local keys = {
  ledger = KEYS[1], leases = KEYS[2], templates = KEYS[3], outbox = KEYS[4], ended = KEYS[7], dead = KEYS[8],
  paused = KEYS[10], version = KEYS[11], scheduler = KEYS[12], hours = KEYS[14], active = KEYS[16], chain = KEYS[17], clock = now,
  unpublished = {}, pushed = {}, stopped = KEYS[18], lane = ARGV[6], unreleased = KEYS[19],
}
if ARGV[4] ~= '' then run.error = ARGV[4] end
if ARGV[5] ~= '' then redis.call('HSET', KEYS[9], id, ARGV[5]) end
if state == 'failed' and run.replaced then state = 'revoked' end
if state == 'failed' then
  run.failures = (run.failures or 0) + 1
  tally(keys.hours, now, { failed = 1 })
  count_up(keys.hours, { failed = 1 })
  local due = next_attempt(run, policy, read_json(ARGV[5] ~= '' and ARGV[5]).category, now)
  if due then
    remember(run, 'failed', now, run.error)
    run.state, run.owner, run.attempt = 'waiting', nil, run.attempt + 1
    local encoded = cjson.encode(run)
    redis.call('HSET', KEYS[1], id, encoded)
    redis.call('ZREM', KEYS[2], id)
    redis.call('ZADD', KEYS[6], due, id)
    return { 'recorded', encoded, {}, {} }
  end
  state = 'dead'
end
if state == 'succeeded' then
  run.error = nil
  redis.call('HDEL', KEYS[9], id)
end
if state == 'succeeded' and run.trigger == 'manual' then
  local manual = read_json(redis.call('HGET', KEYS[13], run.entry))
  manual.success = math.max(manual.success or 0, run.created)
  redis.call('HSET', KEYS[13], run.entry, cjson.encode(manual))
  redis.call('INCR', KEYS[11])
end
local encoded = conclude(keys, id, run, state, policy, now)
release_next(keys, state, policy, tonumber(ARGV[7]), now)
return { 'recorded', encoded, keys.unpublished, keys.pushed }
