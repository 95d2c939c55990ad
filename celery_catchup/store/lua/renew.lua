-- Renew the leases of the runs that a worker executes, and of the messages that it has received.
--
-- KEYS ledger  hash  run id -> run as JSON
-- KEYS leases  zset  active runs by lease expiry (ms)
-- ARGV ttl_ms
-- ARGV now_ms        0 for the server's clock
-- ARGV ...           pairs of run id and owner; "" for the owner of a message that waits in the worker
-- RETURNS the runs whose lease was lost to another worker
local lost, now = {}, server_now(args.now_ms)
for i = first_arg, #ARGV, 2 do
  local id, owner = ARGV[i], ARGV[i + 1]
  local run = load_run(id)
  if owner == '' then
    -- Its message is not lost. An expiring message is looked at after its expiry.
    if run and run.state == 'queued' and not run.expires and redis.call('ZSCORE', keys.leases, id) then
      redis.call('ZADD', keys.leases, now + patience(1), id)
    end
  elseif run and run.state == 'running' and run.owner == owner then
    redis.call('ZADD', keys.leases, now + tonumber(args.ttl_ms), id)
  else
    lost[#lost + 1] = id
  end
end
return lost
