-- Go on with lanes whose release stopped at its budget, the longest waiting first.
--
-- A lane leaves the list in the step that releases the last of it, so that a leader that dies loses none.
--
-- KEYS leader     hash  owner, epoch
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS templates  hash  template id -> message and queue as JSON
-- KEYS outbox     zset  runs to be published
-- KEYS leases     zset  runs by the time in which they have to be claimed or renewed (ms)
-- KEYS policies   hash  lane -> policy as JSON
-- KEYS ended      zset  runs by the time they ended (ms)
-- KEYS unreleased zset  these lanes
-- KEYS stopped    hash  entry -> runs whose failure has stopped its chain, parted by blanks
-- KEYS ...              two per lane: its active runs, its waiting runs (zsets)
-- ARGV owner, epoch, db
-- ARGV now_ms           slot time
-- ARGV ...              lanes
-- RETURNS {how many lanes were looked at, [ids released and pushed]}, or false when somebody else leads
if not leads(KEYS[1], ARGV[1], ARGV[2]) then return false end
local own_db, now, pushed = tonumber(ARGV[3]), tonumber(ARGV[4]), {}
for i = 1, #ARGV - 4 do
  if budget.runs <= 0 or budget.bytes <= 0 then return { i - 1, pushed } end
  local lane = ARGV[4 + i]
  local keys = {
    ledger = KEYS[2], templates = KEYS[3], outbox = KEYS[4], leases = KEYS[5], ended = KEYS[7], unreleased = KEYS[8],
    stopped = KEYS[9], pushed = pushed, lane = lane, active = KEYS[8 + 2 * i], chain = KEYS[9 + 2 * i],
  }
  redis.call('ZREM', keys.unreleased, lane)
  local policy = read_json(redis.call('HGET', KEYS[6], lane))
  if policy.cancelled then
    revoke_waiting(keys, server_now('0'))
  else
    release(keys, policy.capacity or 1, own_db, now)
  end
end
return { #ARGV - 4, pushed }
