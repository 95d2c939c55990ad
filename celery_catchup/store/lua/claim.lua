-- Give a run to one worker; refuse while somebody else's lease is alive, or when it has ended.
--
-- KEYS ledger  hash  run id -> run as JSON
-- KEYS leases  zset  run id by lease expiry (ms)
-- KEYS hours   hash  what happened in each hour
-- KEYS entry_hours hash the same of the entry alone
-- KEYS drained hash  routing key -> when the latest message that was claimed from it was sent (ms)
-- KEYS contact hash  since when the store can be reached
-- ARGV run_id
-- ARGV owner         random per execution
-- ARGV task          name of the task; another task cannot borrow the run
-- ARGV worker        host name, for people
-- ARGV entry         whose hours are given
-- ARGV routing_key   where the message came from, or ""
-- ARGV ttl_ms        how long the lease lasts without a renewal
-- ARGV now_ms        0 in production: the server's own clock decides; tests pass a time
-- RETURNS {"granted", run as JSON}, {"held"}, {"ended", state}, {"unknown"} or {"foreign"}
local ledger, leases = KEYS[1], KEYS[2]
local id, owner = ARGV[1], ARGV[2]
local stored = redis.call('HGET', ledger, id)
if not stored then return { 'unknown' } end
local run = read_run(stored)
if not run then return { 'held' } end -- the leader buries it
if run.task ~= ARGV[3] then return { 'foreign' } end
-- A copy of an earlier message must not start a run that waits for its turn.
if run.state == 'waiting' then return { 'held' } end
if run.state ~= 'queued' and run.state ~= 'running' then return { 'ended', run.state } end

local now, ttl = server_now(ARGV[8]), tonumber(ARGV[7])
local expiry = tonumber(redis.call('ZSCORE', leases, id) or '0')
local taken = run.state == 'running' and run.owner ~= owner
-- The first to find the store again may be a worker with a copy of the message.
if taken and expiry <= now and redis.call('EXISTS', KEYS[6]) == 1 then note_contact(KEYS[6], now, ttl) end
if taken and (expiry > now or not may_take_over(KEYS[6], now, ttl)) then return { 'held' } end
if taken then
  remember(run, 'lost', now)
  run.attempt = run.attempt + 1
end

run.state, run.owner, run.worker = 'running', owner, ARGV[4]
-- How late a run started is told of the schedule's own runs: a backfill is late by its nature.
if not run.started and (run.trigger == 'scheduler' or run.trigger == 'catchup') then
  local lag = math.max(0, now - run.slot)
  tally_lag(KEYS[3], now, lag)
  count_lag(KEYS[3], run.trigger, lag)
  if run.entry == ARGV[5] then tally_lag(KEYS[4], now, lag) end
end
-- Claims from a queue show that it drains: a message that was sent before and is not there was lost.
if run.sent and ARGV[6] ~= '' and run.sent > (tonumber(redis.call('HGET', KEYS[5], ARGV[6]) or '') or 0) + 1000 then
  redis.call('HSET', KEYS[5], ARGV[6], string.format('%.0f', run.sent))
end
run.started, run.unreported = run.started or now, nil
run.attempt_started, run.lease_ms = now, ttl
redis.call('ZADD', leases, now + ttl, id)
local encoded = cjson.encode(run)
redis.call('HSET', ledger, id, encoded)
return { 'granted', encoded }
