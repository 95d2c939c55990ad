-- Look later at runs that wait in their queues without any sign that their messages were lost.
--
-- KEYS leader  hash  owner, epoch
-- KEYS ledger  hash  run id -> run as JSON
-- KEYS leases  zset  runs by the time in which they have to be claimed or renewed (ms)
-- ARGV owner, epoch
-- ARGV ...           pairs of run id and the time of the next look (ms)
-- RETURNS how many are looked at later, or false when another beat leads
if not leads(KEYS[1], ARGV[1], ARGV[2]) then return false end
local count = 0
for i = 3, #ARGV, 2 do
  local run = read_run(redis.call('HGET', KEYS[2], ARGV[i]))
  if run and run.state == 'queued' then
    redis.call('ZADD', KEYS[3], 'XX', ARGV[i + 1], ARGV[i])
    count = count + 1
  end
end
return count
