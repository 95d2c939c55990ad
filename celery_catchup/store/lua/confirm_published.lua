-- Remove runs from the outbox whose messages the broker has confirmed. The lease of each begins now.
--
-- A run that was claimed or retried before its confirmation arrived keeps its lease. The expiry of its message is
-- recorded anyway: a retry of its task has the same expiry.
--
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS leases     zset  active runs by lease expiry (ms)
-- KEYS outbox     zset  runs to publish
-- ARGV now_ms           0 for the server's clock
-- ARGV ...              triples of run id, countdown (ms) and time to live (ms) of its message; 0 for none
-- RETURNS the number of runs that were in the outbox
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
