-- Claim a run for one worker; refuse while another lease on it is valid, or if it has ended.
--
-- KEYS ledger  hash  run id -> run as JSON
-- KEYS leases  zset  active runs by lease expiry (ms)
-- KEYS hours   hash  hourly counts
-- KEYS entry_hours hash hourly counts of the entry
-- KEYS drained hash  routing key (and priority) -> when the latest message that was claimed from it was sent (ms)
-- KEYS contact hash  since when the store is reachable
-- KEYS meta    hash  schema version of the stored state
-- ARGV run_id
-- ARGV owner         random per execution
-- ARGV task          name of the task, or "" if it replaces the run's own (`self.replace`)
-- ARGV task_id       id of the message's task: it shows whether the message belongs to this run
-- ARGV worker        host name, for display
-- ARGV entry         the entry of the hourly counts
-- ARGV routing_key   where the message came from, with its priority, or ""
-- ARGV ttl_ms        how long the lease lasts without a renewal
-- ARGV now_ms        0 for the server's clock; tests pass a time
-- ARGV schema        the newest schema that the worker knows
-- RETURNS {"granted", run as JSON, 1 if it has one of the places of `catchup_max_active`, else 0}, {"held"}, {"ended", state}, {"later"} if it is held and only this message
--         can start it, {"assumed", lane} if its chain has gone on without it (see rejoin.lua), {"unknown"} if
--         there is no readable run, {"foreign"} if the message belongs to another task, or {"newer", schema}
local id, owner, task, message = args.run_id, args.owner, args.task, args.task_id
local newer = newer_schema()
if newer then return { 'newer', newer } end
-- An unreadable run is executed rather than lost; the leader buries the record.
local run = load_run(id)
if not run then return { 'unknown' } end
-- Headers can be passed on to other tasks, and to others of the same name. A run without a message of ours
-- belongs to the first message that claims it.
local unsent = run.template == ''
local own = is_message_of(id, message) or (unsent and (run.task_id or message) == message)
if not own or (task ~= '' and run.task ~= task) then return { 'foreign' } end
if unsent and run.state == 'dead' and not run.started then return { 'foreign' } end
-- A copy of an earlier message must not start a waiting run.
if run.state == 'waiting' then return { 'held' } end
if run.state ~= 'queued' and run.state ~= 'running' then return { 'ended', run.state } end
-- The run was assumed to have run, and its chain went on; its message shows that it did not run.
if run.unreported and not unsent then return { 'assumed', lane_of(run) } end

local now, ttl = server_now(args.now_ms), tonumber(args.ttl_ms)
local expiry = tonumber(redis.call('ZSCORE', keys.leases, id) or '0')
local taken = run.state == 'running' and run.owner ~= owner
-- A worker with a copy of the message may be the first to reach the store again.
if taken and expiry <= now and redis.call('EXISTS', keys.contact) == 1 then note_contact(now, ttl) end
if taken and expiry <= now and run.replaced then return { 'ended', 'revoked' } end
if taken and (expiry > now or not may_take_over(now, ttl)) then return { unsent and 'later' or 'held' } end
if taken then
  remember(run, 'lost', now)
  run.attempt = run.attempt + 1
end

run.state, run.owner, run.worker = 'running', owner, args.worker
run.task_id = message ~= task_id(id, run.attempt) and message or nil
-- Measure the lag of scheduled runs only: a backfill is always late.
if not run.started and (run.trigger == 'scheduler' or run.trigger == 'catchup') then
  local lag = math.max(0, now - run.slot)
  tally_lag(keys.hours, now, lag)
  count_lag(run.trigger, lag)
  if run.entry == args.entry then tally_lag(keys.entry_hours, now, lag) end
end
-- A claim shows that the queue drains: an older message that is not there was lost. A message with a countdown
-- left the queue when it was sent, and waited in its worker. One whose confirmation took long was there before.
local key, passed = args.routing_key, run.sent and run.sent - (run.countdown or 0) - (run.took or 0) or 0
if key ~= '' and passed > (tonumber(redis.call('HGET', keys.drained, key) or '') or 0) + 1000 then
  redis.call('HSET', keys.drained, key, string.format('%.0f', passed))
end
run.started, run.unreported = run.started or now, nil
run.attempt_started, run.lease_ms = now, ttl
redis.call('ZADD', keys.leases, now + ttl, id)
return { 'granted', store_run(id, run), takes_place(run) and limit() and 1 or 0 }
