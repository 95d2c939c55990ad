-- Put a run that was assumed to have run back into its chain: its message has reached a worker.
--
-- The chain went on without the run. Unclaimed later runs wait again, to keep the order. While an earlier run is
-- active, or a later one is running, this run waits, too.
--
-- KEYS ledger    hash  run id -> run as JSON
-- KEYS leases    zset  active runs by lease expiry (ms)
-- KEYS outbox    zset  runs to publish
-- KEYS policies  hash  entry -> policy as JSON
-- KEYS ended     zset  ended runs by end (ms)
-- KEYS active    zset  the lane's active runs
-- KEYS chain     zset  the lane's waiting runs
-- KEYS meta       hash the limit `max_active`
-- KEYS catchup_active zset catch-up and backfill runs that are queued or running, if there is a limit
-- KEYS catchup_waiting zset lanes that wait for a place among them
-- ARGV run_id
-- ARGV lane            the lane of the active and waiting runs
-- ARGV now_ms          0 for the server's clock; tests pass a time
-- RETURNS "queued" if the run can be claimed, "waiting" if the chain will send it again, or "unchanged"
local id = args.run_id
local run = load_run(id)
if not run or not run.unreported or run.state ~= 'queued' or lane_of(run) ~= args.lane then return 'unchanged' end
local capacity = policy_of(args.lane).capacity
local place = place_of(run)

-- Store a waiting run, at its place in the chain.
local function wait(waiting_id, waiting, at)
  waiting.state, waiting.sent, waiting.expires = 'waiting', nil, nil
  store_run(waiting_id, waiting)
  for _, key in ipairs({ keys.leases, keys.outbox, keys.active, keys.catchup_active }) do
    redis.call('ZREM', key, waiting_id)
  end
  redis.call('ZADD', keys.chain, at, waiting_id)
end

local ahead, later = 0, {}
local active = capacity < 0 and {} or redis.call('ZRANGE', keys.active, 0, -1, 'WITHSCORES')
for i = 1, #active, 2 do
  local other, at = load_run(active[i]), tonumber(active[i + 1])
  if other and other.state == 'queued' and at > place then
    later[#later + 1] = { active[i], other, at }
  else
    ahead = ahead + 1
  end
end
run.unreported, run.finished = nil, nil
redis.call('ZREM', keys.ended, id)
keys.lane = args.lane
local crowded = takes_place(run) and not has_place()
if crowded then wait_for_place() end
if crowded or (capacity >= 0 and ahead >= capacity) then
  wait(id, run, place)
  return 'waiting'
end
if takes_place(run) then take_place(id, server_now(args.now_ms)) end
for i = #later, 1, -1 do
  if capacity < 0 or ahead + 1 + i <= capacity then break end
  wait(unpack(later[i]))
end
store_run(id, run)
redis.call('ZADD', keys.active, place, id)
redis.call('ZADD', keys.leases, look_at(server_now(args.now_ms), run.sends, run.expires), id)
return 'queued'
