-- Make a run with an unreadable record a dead letter; its chain goes on.
--
-- KEYS leader     hash  owner, epoch
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS leases     zset  active runs by lease expiry (ms)
-- KEYS retries    zset  failed runs by next attempt (ms)
-- KEYS templates  hash  template id -> message and queue, or base and inputs, as JSON
-- KEYS outbox     zset  runs to publish
-- KEYS delayed    zset  runs to send later
-- KEYS policies   hash  entry -> policy as JSON
-- KEYS ended      zset  ended runs by end (ms)
-- KEYS dead       zset  dead letters by end (ms)
-- KEYS letters    hash  run id -> failure as JSON
-- KEYS active     zset  the entry's active runs
-- KEYS chain      zset  the entry's waiting runs
-- KEYS stopped    hash  entry -> runs whose failure stopped its chain, separated by blanks
-- KEYS unreleased zset  lanes whose release stopped at its budget; the leader continues them
-- KEYS meta       hash the limit `max_active`
-- KEYS catchup_active zset catch-up and backfill runs that are queued or running, if there is a limit
-- KEYS catchup_waiting zset lanes that wait for a place among them
-- ARGV owner, epoch, db
-- ARGV run_id
-- ARGV entry, slot      as far as the lists know them
-- ARGV now_ms           0 for the server's clock
-- RETURNS "buried", "sound" if it can be read, or false if another beat leads
if not leads() then return false end
local id, now = args.run_id, server_now(args.now_ms)
local run, stored = load_run(id)
if run then return 'sound' end
for _, key in ipairs({ keys.leases, keys.retries, keys.outbox, keys.delayed, keys.active, keys.chain, keys.catchup_active }) do
  redis.call('ZREM', key, id)
end
local policy = policy_of(args.entry)
if stored then
  local shown = string.gsub(string.sub(stored, 1, 2000), '[^\32-\126]', '?')
  redis.call('HSET', keys.letters, id, cjson.encode({ type = 'corrupt', category = 'permanent', traceback = shown }))
  store_run(id, {
    entry = args.entry, slot = tonumber(args.slot), schedule = 0, task = '', trigger = 'scheduler', template = '',
    state = 'dead', attempt = 1, sends = 0, created = now, finished = now, error = 'corrupt: its record could not be read',
  })
  redis.call('ZADD', keys.ended, now, id)
  redis.call('ZADD', keys.dead, now, id)
  stop(args.entry, id, policy)
end
keys.lane, sending.at = args.entry, now
release(policy.capacity, now)
return 'buried'
