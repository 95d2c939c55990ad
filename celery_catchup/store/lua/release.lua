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
if not leads() then return false end
local now = tonumber(args.now_ms)
for i = 0, #ARGV - first_arg do
  if budget.runs <= 0 or budget.bytes <= 0 then return { i, sending.pushed } end
  keys.lane, keys.active, keys.chain = ARGV[first_arg + i], KEYS[first_key + 2 * i], KEYS[first_key + 2 * i + 1]
  redis.call('ZREM', keys.unreleased, keys.lane)
  local policy = policy_of(keys.lane)
  if policy.cancelled then
    revoke_waiting(server_now('0'))
  else
    release(policy.capacity, now)
  end
end
return { #ARGV - first_arg + 1, sending.pushed }
