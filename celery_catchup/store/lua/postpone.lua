-- Look again later at queued runs without evidence that their messages were lost.
--
-- KEYS leader  hash  owner, epoch
-- KEYS ledger  hash  run id -> run as JSON
-- KEYS leases  zset  active runs by lease expiry (ms)
-- ARGV owner, epoch
-- ARGV ...           pairs of run id and the time of the next look (ms)
-- RETURNS the number of postponed runs, or false if another beat leads
if not leads() then return false end
local count = 0
for i = first_arg, #ARGV, 2 do
  local run = load_run(ARGV[i])
  if run and run.state == 'queued' then
    redis.call('ZADD', keys.leases, 'XX', ARGV[i + 1], ARGV[i])
    count = count + 1
  end
end
return count
