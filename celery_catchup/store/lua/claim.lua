-- Give a run to one worker; refuse while somebody else's lease is alive, or when it has ended.
--
-- KEYS ledger  hash  run id -> run as JSON
-- KEYS leases  zset  run id by lease expiry (ms)
-- KEYS hours   hash  what happened in each hour
-- KEYS entry_hours hash the same of the entry alone
-- KEYS meta    hash  schema version of the stored state
-- ARGV run_id
-- ARGV owner         random per execution
-- ARGV task          name of the task, or "" when it replaces the run's own (`self.replace`)
-- ARGV task_id       id of the message's task: it tells whether the message is one of this run
-- ARGV worker        host name, for people
-- ARGV entry         whose hours are given
-- ARGV ttl_ms        how long the lease lasts without a renewal
-- ARGV now_ms        0 in production: the server's own clock decides; tests pass a time
-- ARGV schema        the newest version of the stored state that the worker knows
-- RETURNS {"granted", run as JSON}, {"held"}, {"ended", state}, {"later"} when it is held and nothing but this
--         message can start it, {"unknown"} when there is no run that could be read, {"foreign"} when the message
--         is none of this run, or {"newer", schema}
local ledger, leases = KEYS[1], KEYS[2]
local id, owner, task, message = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local newer = newer_schema(KEYS[5], ARGV[9])
if newer then return { 'newer', newer } end
-- One that cannot be read is executed rather than lost; the leader buries the record.
local run = read_run(redis.call('HGET', ledger, id))
if not run then return { 'unknown' } end
-- Headers can be passed on to other tasks, and to others of the same name. A run that has no message of
-- ours belongs to the first message that claims it.
local unsent = run.template == ''
local own = is_message_of(id, message) or (unsent and (run.task_id or message) == message)
if not own or (task ~= '' and run.task ~= task) then return { 'foreign' } end
if unsent and run.state == 'dead' and not run.started then return { 'foreign' } end
-- A copy of an earlier message must not start a run that waits for its turn.
if run.state == 'waiting' then return { 'held' } end
if run.state ~= 'queued' and run.state ~= 'running' then return { 'ended', run.state } end

local now = server_now(ARGV[8])
local expiry = tonumber(redis.call('ZSCORE', leases, id) or '0')
if unsent and run.state == 'running' and run.owner ~= owner and expiry > now then return { 'later' } end
if run.state == 'running' and run.owner ~= owner and expiry > now then return { 'held' } end
if run.state == 'running' and run.owner ~= owner and run.replaced then return { 'ended', 'revoked' } end
if run.state == 'running' and run.owner ~= owner then
  remember(run, 'lost', now)
  run.attempt = run.attempt + 1
end

run.state, run.owner, run.worker = 'running', owner, ARGV[5]
run.task_id = message ~= task_id(id, run.attempt) and message or nil
-- How late a run started is told of the schedule's own runs: a backfill is late by its nature.
if not run.started and (run.trigger == 'scheduler' or run.trigger == 'catchup') then
  local lag = math.max(0, now - run.slot)
  tally_lag(KEYS[3], now, lag)
  count_lag(KEYS[3], run.trigger, lag)
  if run.entry == ARGV[6] then tally_lag(KEYS[4], now, lag) end
end
run.started = run.started or now
run.attempt_started = now
redis.call('ZADD', leases, now + tonumber(ARGV[7]), id)
local encoded = cjson.encode(run)
redis.call('HSET', ledger, id, encoded)
return { 'granted', encoded }
