-- Take runs off the outbox whose messages the broker has confirmed. The lease of each begins now.
--
-- A run that was claimed, or even retried, before its confirmation arrived keeps its lease. When its message
-- expires is recorded all the same: a retry of its task has the same expiry.
--
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS leases     zset  runs by the time in which they have to be claimed or renewed (ms)
-- KEYS outbox     zset  runs to be published
-- ARGV now_ms           0 in production
-- ARGV ...              triples of run id, countdown (ms) and time to live (ms) of its message; 0 for none
-- RETURNS how many runs were in the outbox
local now, count = server_now(args.now_ms), 0
for i = first_arg, #ARGV, 3 do
  local id, countdown, expires = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  count = count + redis.call('ZREM', keys.outbox, id)
  local run = load_run(id)
  local open = run and (run.state == 'queued' or run.state == 'running')
  if open and not run.sent then
    record_sent(id, run, now, countdown, expires > 0 and expires or nil)
  elseif open and expires > 0 and not run.expires then
    run.expires = now + expires
    store_run(id, run)
  end
end
return count
