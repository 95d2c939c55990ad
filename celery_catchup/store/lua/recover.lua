-- Send a run again if its worker or message was lost or its next attempt is due; or end it.
--
-- The leader calls it for runs whose lease has expired or whose retry is due. A run that was claimed in between is
-- left alone. A run whose workers are lost, or do not know its task, more often than `max_attempts` + 2 is dead. A run
-- that waits in its queue is never dead: the leader passes the evidence.
--
-- KEYS leader     hash    owner, epoch
-- KEYS ledger     hash    run id -> run as JSON
-- KEYS leases     zset    active runs by lease expiry (ms)
-- KEYS retries    zset    failed runs by next attempt (ms)
-- KEYS templates  hash    template id -> message and queue, or base and inputs, as JSON
-- KEYS outbox     zset    runs to publish
-- KEYS policies   hash    entry -> policy as JSON
-- KEYS ended      zset    ended runs by end (ms)
-- KEYS dead       zset    dead letters by end (ms)
-- KEYS paused     hash    entry -> pause as JSON
-- KEYS version    string  counter of changes from outside
-- KEYS scheduler  hash    the scheduler's watermark
-- KEYS hours      hash    hourly counts
-- KEYS contact    hash    since when the store is reachable
-- KEYS active     zset    the lane's active runs
-- KEYS chain      zset    the lane's waiting runs
-- KEYS stopped    hash    entry -> runs whose failure stopped its chain, separated by blanks
-- KEYS unreleased zset    lanes whose release stopped at its budget; the leader continues them
-- KEYS meta       hash the limit `max_active`
-- KEYS catchup_active zset catch-up and backfill runs that are queued or running, if there is a limit
-- KEYS catchup_waiting zset lanes that wait for a place among them
-- ARGV owner, epoch, db
-- ARGV run_id
-- ARGV evidence           about a queued run: "lost" to send it again, "expired", "assumed" if it is assumed to
--                         have run without a report, or ""
-- ARGV sends              how often the run had been sent when it was judged; it is not judged any more if it was
--                         sent since, because this request may arrive late
-- ARGV ttl_ms             how long a run's lease lasts
-- ARGV now_ms             0 for the server's clock; tests pass a time
-- RETURNS "sent", "waiting" if it has no place among the active catch-up runs, "dead", "alive", "ended", "expired", "assumed", "corrupt" if it cannot be read, or
--         false if another beat leads
if not leads() then return false end
local id, evidence, now = args.run_id, args.evidence, server_now(args.now_ms)
local run, stored = load_run(id)
if stored and not run then return 'corrupt' end
if not run or not is_open(run) then
  redis.call('ZREM', keys.leases, id)
  redis.call('ZREM', keys.retries, id)
  return 'ended'
end

keys.lane, sending.at = lane_of(run), now
local retry = tonumber(redis.call('ZSCORE', keys.retries, id) or '-1')
if retry >= 0 then
  if retry > now then return 'alive' end
  redis.call('ZREM', keys.retries, id)
  if takes_place(run) and not has_place() then -- it waits in its chain, where it is the first
    local at = redis.call('ZSCORE', keys.active, id) or place_of(run)
    redis.call('ZREM', keys.active, id)
    redis.call('ZADD', keys.chain, at, id)
    wait_for_place()
    return 'waiting'
  end
  if takes_place(run) then take_place(id, now) end
  dispatch(id, run, now)
  return 'sent'
end

local lease = tonumber(redis.call('ZSCORE', keys.leases, id) or '-1')
if lease < 0 or lease > now then return 'alive' end
local policy = policy_of(lane_of(run))

-- Record the end of the run, and go on with its chain.
local function give_up(state, answer)
  conclude(id, run, state, policy, now)
  release(policy.capacity, now)
  return answer
end

if run.state == 'queued' and not run.discarded then
  if tonumber(args.sends) ~= run.sends then return 'alive' end
  if evidence == 'lost' then
    dispatch(id, run, now)
    return 'sent'
  elseif evidence == 'expired' then
    run.error = 'expired: no worker started it in time'
    return give_up('revoked', 'expired')
  elseif evidence == 'assumed' then
    run.unreported = true
    return give_up('queued', 'assumed')
  end
  return 'alive'
end
if run.state == 'waiting' then redis.call('ZREM', keys.leases, id) end
if run.state == 'running' and run.replaced then return give_up('revoked', 'ended') end -- another one has started
local early = run.state == 'running' and not may_take_over(now, tonumber(args.ttl_ms))
if run.state == 'waiting' or early then return 'alive' end
run.losses = (run.losses or 0) + 1
if run.losses > policy.max_attempts + 2 then
  run.error = run.discarded and run.error or 'its workers were lost'
  return give_up('dead', 'dead')
end
if run.state == 'running' then
  remember(run, 'lost', now)
  run.attempt, run.owner = run.attempt + 1, nil
end
dispatch(id, run, now)
return 'sent'
