-- Release more of the lanes whose release stopped at its budget, or that can have a place among the active catch-up
-- runs; the longest waiting first. The leader does it, or a worker that has ended a run.
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
-- KEYS meta       hash the limit `max_active`
-- KEYS catchup_active zset catch-up and backfill runs that are queued or running, if there is a limit
-- KEYS catchup_waiting zset lanes that wait for a place among them
-- KEYS stopped    hash  entry -> runs whose failure stopped its chain, separated by blanks
-- KEYS ...              two per lane: its active runs, its waiting runs (zsets)
-- ARGV owner, epoch, db   the fence of the leader; owner "" for a worker, whichever beat leads
-- ARGV now_ms           slot time, or 0 for the server's clock
-- ARGV ...              lanes
-- RETURNS {number of lanes looked at, [ids released and pushed], [id, run and template as JSON of each run that the
--         worker is to publish]}, or false if another beat leads
if args.owner ~= '' and not leads() then return false end
local now = server_now(args.now_ms)
sending.by_worker = args.owner == '' or nil
for i = 0, #ARGV - first_arg do
  if budget.runs <= 0 or budget.bytes <= 0 then return { i, sending.pushed, sending.unpublished } end
  keys.lane, keys.active, keys.chain = ARGV[first_arg + i], KEYS[first_key + 2 * i], KEYS[first_key + 2 * i + 1]
  redis.call('ZREM', keys.unreleased, keys.lane)
  local policy = policy_of(keys.lane)
  local crowded = false
  if policy.cancelled then
    revoke_waiting(server_now('0'))
  else
    crowded = release(policy.capacity, now)
  end
  if not crowded then redis.call('ZREM', keys.catchup_waiting, keys.lane) end
end
return { #ARGV - first_arg + 1, sending.pushed, sending.unpublished }
