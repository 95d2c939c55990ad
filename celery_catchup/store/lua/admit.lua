-- Let delayed runs whose time has come start in their turn, and release what may start.
--
-- A delayed run keeps its place in the chain: until this script lets it go, nothing behind it starts.
-- The leader calls it each tick for entries that have something waiting: it is what goes on
-- with a chain whose worker died before it could release the next.
--
-- KEYS leader     hash  owner, epoch
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS templates  hash  template id -> message and queue as JSON
-- KEYS outbox     zset  runs to be published
-- KEYS delayed    zset  runs that are sent later, by the time they may go
-- KEYS leases     zset  runs by the time in which they have to be claimed or renewed (ms)
-- KEYS active     zset  the entry's active runs
-- KEYS chain      zset  the entry's waiting runs
-- ARGV owner, epoch, db
-- ARGV entry            whose chain it is
-- ARGV capacity         how many may be active, -1 for any number
-- ARGV now_ms           slot time
-- RETURNS run ids that were released, or false when somebody else leads
if not leads(KEYS[1], ARGV[1], ARGV[2]) then return false end
local now = tonumber(ARGV[6])
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', now, 'LIMIT', 0, 1000)) do
  local stored = redis.call('HGET', KEYS[2], id)
  local run = read_run(stored)
  if not run then
    redis.call('ZREM', KEYS[5], id)
    if stored then redis.call('ZADD', KEYS[6], 0, id) end
  elseif run.entry == ARGV[4] then
    redis.call('ZREM', KEYS[5], id)
    if run.state == 'waiting' and run.sends == 0 and lane_of(run) == ARGV[4] then
      run.delayed = nil
      redis.call('HSET', KEYS[2], id, cjson.encode(run))
      redis.call('ZADD', KEYS[8], run.slot + run.schedule / 1000, id)
    end
  end
end
local keys = {
  ledger = KEYS[2], templates = KEYS[3], outbox = KEYS[4], leases = KEYS[6], active = KEYS[7], chain = KEYS[8],
}
return release(keys, tonumber(ARGV[5]), tonumber(ARGV[3]), now)
