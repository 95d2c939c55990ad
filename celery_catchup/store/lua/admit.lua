-- Let delayed runs that are due start in their turn; the leader then releases their lanes.
--
-- A delayed run keeps its place in the chain: no later run starts before this script admits it.
--
-- KEYS leader     hash  owner, epoch
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS delayed    zset  runs to send later, by time (ms)
-- KEYS leases     zset  active runs by lease expiry (ms)
-- KEYS unreleased zset  lanes that the leader is to release
-- KEYS ...              the chain of each run's entry
-- ARGV owner, epoch
-- ARGV now_ms           slot time
-- ARGV ...              run ids, each with the name of its entry
-- RETURNS the number of admitted runs, or false if another beat leads
if not leads() then return false end
local now, admitted = tonumber(args.now_ms), 0
for i = 0, #KEYS - first_key do
  local id, entry, chain = ARGV[first_arg + 2 * i], ARGV[first_arg + 2 * i + 1], KEYS[first_key + i]
  local at = tonumber(redis.call('ZSCORE', keys.delayed, id) or 'inf')
  local run, stored = load_run(id)
  local kind = redis.call('TYPE', chain).ok
  if kind ~= 'zset' and kind ~= 'none' then
    redis.call('ZADD', keys.delayed, 'XX', now + 60000, id) -- only the entry with the damaged chain waits
    admitted = admitted + 1
  elseif at <= now and not (run and run.entry ~= entry) then
    redis.call('ZREM', keys.delayed, id)
    admitted = admitted + 1
    if run and run.state == 'waiting' and run.sends == 0 and lane_of(run) == entry then
      run.delayed = nil
      store_run(id, run)
      redis.call('ZADD', chain, place_of(run), id)
      keys.lane = entry
      leave_to_leader()
    elseif stored and not run then
      redis.call('ZADD', keys.leases, 0, id) -- overdue, so that the leader looks at it
    end
  end
end
return admitted
