-- Give up a run whose record cannot be read: it becomes a dead letter, and its chain goes on.
--
-- KEYS leader     hash  owner, epoch
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS leases     zset  runs by the time in which they have to be claimed or renewed (ms)
-- KEYS retries    zset  failed runs by the time of their next attempt (ms)
-- KEYS templates  hash  template id -> message and queue as JSON
-- KEYS outbox     zset  runs to be published
-- KEYS delayed    zset  runs that are sent later
-- KEYS policies   hash  entry -> policy as JSON
-- KEYS ended      zset  runs by the time they ended (ms)
-- KEYS dead       zset  dead letters by the time they died (ms)
-- KEYS letters    hash  run id -> what is known of its failure, as JSON
-- KEYS active     zset  the entry's active runs
-- KEYS chain      zset  the entry's waiting runs
-- KEYS stopped    hash  entry -> runs whose failure has stopped its chain, parted by blanks
-- KEYS unreleased zset  lanes whose release stopped at its budget; the leader goes on with them
-- ARGV owner, epoch, db
-- ARGV run_id
-- ARGV entry, slot      what the lists still know of it
-- ARGV now_ms           0 in production
-- RETURNS "buried", "sound" when it can be read, or "fenced" when somebody else leads
if not leads(KEYS[1], ARGV[1], ARGV[2]) then return 'fenced' end
local id, now = ARGV[4], server_now(ARGV[7])
local stored = redis.call('HGET', KEYS[2], id)
if read_run(stored) then return 'sound' end
for _, key in ipairs({ KEYS[3], KEYS[4], KEYS[6], KEYS[7], KEYS[12], KEYS[13] }) do redis.call('ZREM', key, id) end
if stored then
  local shown = string.gsub(string.sub(stored, 1, 2000), '[^\32-\126]', '?')
  redis.call('HSET', KEYS[11], id, cjson.encode({ type = 'corrupt', category = 'permanent', traceback = shown }))
  redis.call('HSET', KEYS[2], id, cjson.encode({
    entry = ARGV[5], slot = tonumber(ARGV[6]), schedule = 0, task = '', trigger = 'scheduler', template = '',
    state = 'dead', attempt = 1, sends = 0, created = now, finished = now, error = 'corrupt: its record could not be read',
  }))
  redis.call('ZADD', KEYS[9], now, id)
  redis.call('ZADD', KEYS[10], now, id)
end
local policy = cjson.decode(redis.call('HGET', KEYS[8], ARGV[5]) or '{"capacity":1}')
local keys = {
  ledger = KEYS[2], leases = KEYS[3], templates = KEYS[5], outbox = KEYS[6], active = KEYS[12], chain = KEYS[13], clock = now,
  stopped = KEYS[14], lane = ARGV[5], unreleased = KEYS[15],
}
if stored and policy.on_failure == 'stop' and policy.capacity >= 0 then stop(KEYS[14], ARGV[5], id) end
release_next(keys, 'dead', policy, tonumber(ARGV[3]), now)
return 'buried'
