-- Release more of the lanes whose release stopped at its budget, the longest waiting first.
--
-- A lane leaves the list in the step that releases the last of it, so that none is lost if the leader dies.
--
-- KEYS leader     hash  owner, epoch
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS templates  hash  template id -> message and queue, or base and inputs, as JSON
-- KEYS outbox     zset  runs to publish
-- KEYS leases     zset  active runs by lease expiry (ms)
-- KEYS policies   hash  lane -> policy as JSON
-- KEYS ended      zset  ended runs by end (ms)
-- KEYS unreleased zset  lanes whose release stopped at its budget
-- KEYS stopped    hash  entry -> runs whose failure stopped its chain, separated by blanks
-- KEYS ...              two per lane: its active runs, its waiting runs (zsets)
-- ARGV owner, epoch, db
-- ARGV now_ms           slot time
-- ARGV ...              lanes
-- RETURNS {number of lanes looked at, [ids released and pushed]}, or false if another beat leads
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
