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
local id, owner = ARGV[1], ARGV[2]
local stored = redis.call('HGET', KEYS[1], id)
local run = read_run(stored)
if not run then return 'unknown' end
if run.state ~= 'queued' and run.state ~= 'running' and run.state ~= 'waiting' then return 'ended' end
if (run.owner or '') ~= owner then return 'superseded' end

local now = server_now(ARGV[5])
if ARGV[4] ~= '' then run.error = ARGV[4] end
-- A message that no worker understood was no attempt, and it is gone.
run.discarded = owner == '' or nil
if owner ~= '' then
  remember(run, 'retried', now, run.error)
  run.attempt = run.attempt + 1
end
run.state, run.owner, run.sent, run.countdown = 'queued', nil, now + tonumber(ARGV[3]), tonumber(ARGV[3])
redis.call('ZADD', KEYS[2], look_at(run.sent, run.sends, run.expires), id)
redis.call('HSET', KEYS[1], id, cjson.encode(run))
return 'recorded'
