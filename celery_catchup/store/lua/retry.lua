-- Queue a running run again: its task asked for a retry, or its message was returned.
--
-- The run stays active, so that no run of its entry overtakes it. It has no owner until the next delivery claims it,
-- which may take as long as for any queued message.
--
-- KEYS ledger  hash  run id -> run as JSON
-- KEYS leases  zset  active runs by lease expiry (ms)
-- ARGV run_id
-- ARGV owner         random per execution; "" for a message that no worker understood
-- ARGV delay_ms      delay of the next delivery
-- ARGV error         why it is retried, in one line, or ""
-- ARGV now_ms        0 for the server's clock; tests pass a time
-- RETURNS "recorded", "superseded", "ended" or "unknown"
local id, owner = args.run_id, args.owner
local run = load_run(id)
if not run then return 'unknown' end
if not is_open(run) then return 'ended' end
if (run.owner or '') ~= owner then return 'superseded' end

local now = server_now(args.now_ms)
if args.error ~= '' then run.error = args.error end
-- A message that no worker understood was not an attempt, and it is gone.
run.discarded = owner == '' or nil
if owner ~= '' then
  remember(run, 'retried', now, run.error)
  run.attempt = run.attempt + 1
end
run.state, run.owner, run.took = 'queued', nil, nil
run.sent, run.countdown = now + tonumber(args.delay_ms), tonumber(args.delay_ms)
-- A worker that does not know the task discards the message at once: the leader need not wait for a loss.
local look = run.discarded and now + 15000 * math.min(2, 1 + (run.losses or 0)) or look_at(run.sent, run.sends, run.expires)
redis.call('ZADD', keys.leases, look, id)
store_run(id, run)
return 'recorded'
