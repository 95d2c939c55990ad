-- Let delayed runs whose time has come start in their turn; the leader then releases their lanes.
--
-- A delayed run keeps its place in the chain: until this script lets it go, nothing behind it starts.
--
-- KEYS leader     hash  owner, epoch
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS delayed    zset  runs that are sent later, by the time they may go
-- KEYS leases     zset  runs by the time in which they have to be claimed or renewed (ms)
-- KEYS unreleased zset  lanes that the leader is to release
-- KEYS ...              the chain of each run's entry
-- ARGV owner, epoch
-- ARGV now_ms           slot time
-- ARGV ...              run ids, each with the name of its entry
-- RETURNS how many were delayed no longer, or false when somebody else leads
if not leads(KEYS[1], ARGV[1], ARGV[2]) then return false end
local now, admitted = tonumber(ARGV[3]), 0
for i = 1, #KEYS - 5 do
  local id, entry = ARGV[2 + 2 * i], ARGV[3 + 2 * i]
  local at = tonumber(redis.call('ZSCORE', KEYS[3], id) or 'inf')
  local stored = redis.call('HGET', KEYS[2], id)
  local run = read_run(stored)
  local kind = redis.call('TYPE', KEYS[5 + i]).ok
  if kind ~= 'zset' and kind ~= 'none' then
    redis.call('ZADD', KEYS[3], 'XX', now + 60000, id) -- a damaged chain is its entry's trouble
    admitted = admitted + 1
  elseif at <= now and not (run and run.entry ~= entry) then
    redis.call('ZREM', KEYS[3], id)
    admitted = admitted + 1
    if run and run.state == 'waiting' and run.sends == 0 and lane_of(run) == entry then
      run.delayed = nil
      redis.call('HSET', KEYS[2], id, cjson.encode(run))
      redis.call('ZADD', KEYS[5 + i], run.slot + run.schedule / 1000, id)
      leave_to_leader({ unreleased = KEYS[5], lane = entry })
    elseif stored and not run then
      redis.call('ZADD', KEYS[4], 0, id) -- overdue, so that the leader looks at it
    end
  end
end
return admitted
