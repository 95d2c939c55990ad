-- Keep the leases of the runs that a worker is executing.
--
-- KEYS ledger  hash  run id -> run as JSON
-- KEYS leases  zset  run id by lease expiry (ms)
-- ARGV ttl_ms
-- ARGV now_ms        0 in production
-- ARGV ...           pairs of run id and owner
-- RETURNS the run ids whose lease was lost to somebody else
local lost, now = {}, server_now(ARGV[2])
for i = 3, #ARGV, 2 do
  local stored = redis.call('HGET', KEYS[1], ARGV[i])
  local run = read_run(stored)
  if run and run.state == 'running' and run.owner == ARGV[i + 1] then
    redis.call('ZADD', KEYS[2], now + tonumber(ARGV[1]), ARGV[i])
  else
    lost[#lost + 1] = ARGV[i]
  end
end
return lost
