-- Keep the leases of the runs that a worker is executing, and of the messages that it has received.
--
-- KEYS ledger  hash  run id -> run as JSON
-- KEYS leases  zset  run id by lease expiry (ms)
-- ARGV ttl_ms
-- ARGV now_ms        0 in production
-- ARGV ...           pairs of run id and owner; "" for the owner of a message that waits in the worker
-- RETURNS the run ids whose lease was lost to somebody else
local lost, now = {}, server_now(ARGV[2])
for i = 3, #ARGV, 2 do
  local id, owner = ARGV[i], ARGV[i + 1]
  local run = read_run(redis.call('HGET', KEYS[1], id))
  if owner == '' then
    -- Its message is not lost. One that expires is looked at when it has.
    if run and run.state == 'queued' and not run.expires and redis.call('ZSCORE', KEYS[2], id) then
      redis.call('ZADD', KEYS[2], now + patience(1), id)
    end
  elseif run and run.state == 'running' and run.owner == owner then
    redis.call('ZADD', KEYS[2], now + tonumber(ARGV[1]), id)
  else
    lost[#lost + 1] = id
  end
end
return lost
