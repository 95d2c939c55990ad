-- Give a run that was assumed to have run its place in the chain back: its message has reached a worker.
--
-- The chain went on without the run. Later runs that no worker has claimed go back to waiting, so that the
-- order is kept. While an earlier run is active, or a later one is running, this run waits too.
--
-- KEYS ledger    hash  run id -> run as JSON
-- KEYS leases    zset  runs by the time in which they have to be claimed or renewed (ms)
-- KEYS outbox    zset  runs to be published
-- KEYS policies  hash  entry -> policy as JSON
-- KEYS ended     zset  runs by the time they ended (ms)
-- KEYS active    zset  the lane's active runs
-- KEYS chain     zset  the lane's waiting runs
-- ARGV run_id
-- ARGV lane            whose active and waiting runs are given
-- ARGV now_ms          0 in production: the server's own clock decides; tests pass a time
-- RETURNS "queued" when the run can be claimed, "waiting" when the chain will send it again, or "unchanged"
local id = ARGV[1]
local run = read_run(redis.call('HGET', KEYS[1], id))
if not run or not run.unreported or run.state ~= 'queued' or lane_of(run) ~= ARGV[2] then return 'unchanged' end
local capacity = read_json(redis.call('HGET', KEYS[4], ARGV[2])).capacity or 1
local place = run.slot + run.schedule / 1000

-- Store a run that waits, at its place in the chain.
local function wait(waiting_id, waiting, at)
  waiting.state, waiting.sent, waiting.expires = 'waiting', nil, nil
  redis.call('HSET', KEYS[1], waiting_id, cjson.encode(waiting))
  redis.call('ZREM', KEYS[2], waiting_id)
  redis.call('ZREM', KEYS[3], waiting_id)
  redis.call('ZREM', KEYS[6], waiting_id)
  redis.call('ZADD', KEYS[7], at, waiting_id)
end

local ahead, later = 0, {}
local active = capacity < 0 and {} or redis.call('ZRANGE', KEYS[6], 0, -1, 'WITHSCORES')
for i = 1, #active, 2 do
  local other, at = read_run(redis.call('HGET', KEYS[1], active[i])), tonumber(active[i + 1])
  if other and other.state == 'queued' and at > place then
    later[#later + 1] = { active[i], other, at }
  else
    ahead = ahead + 1
  end
end
run.unreported, run.finished = nil, nil
redis.call('ZREM', KEYS[5], id)
if capacity >= 0 and ahead >= capacity then
  wait(id, run, place)
  return 'waiting'
end
for i = #later, 1, -1 do
  if capacity < 0 or ahead + 1 + i <= capacity then break end
  wait(unpack(later[i]))
end
redis.call('HSET', KEYS[1], id, cjson.encode(run))
redis.call('ZADD', KEYS[6], place, id)
redis.call('ZADD', KEYS[2], look_at(server_now(ARGV[3]), run.sends, run.expires), id)
return 'queued'
