-- Put a running run back behind its message: its task asked for another try, or its message went back.
--
-- The run keeps its place among the active ones, so that nothing of its entry overtakes it. It
-- belongs to nobody until the next delivery claims it, for which there is as much time as for
-- any message that waits in its queue.
--
-- KEYS ledger  hash  run id -> run as JSON
-- KEYS leases  zset  runs by the time in which they have to be claimed or renewed (ms)
-- ARGV run_id
-- ARGV owner         who executed it; "" for a message that no worker understood
-- ARGV delay_ms      how long the next delivery is put off
-- ARGV error         why it is tried again, in a line, or ""
-- ARGV now_ms        0 in production: the server's own clock decides; tests pass a time
-- RETURNS "recorded", "superseded", "ended" or "unknown"
local id, owner = args.run_id, args.owner
local run, stored = load_run(id)
if not run then return 'unknown' end
if not is_open(run) then return 'ended' end
if (run.owner or '') ~= owner then return 'superseded' end

local now = server_now(args.now_ms)
if args.error ~= '' then run.error = args.error end
-- A message that no worker understood was no attempt, and it is gone.
run.discarded = owner == '' or nil
if owner ~= '' then
  remember(run, 'retried', now, run.error)
  run.attempt = run.attempt + 1
end
run.state, run.owner, run.sent, run.countdown = 'queued', nil, now + tonumber(args.delay_ms), tonumber(args.delay_ms)
redis.call('ZADD', keys.leases, look_at(run.sent, run.sends, run.expires), id)
store_run(id, run)
return 'recorded'
