-- Start a run by hand: recorded like any other, and released as far as the entry's policy allows.
--
-- KEYS ledger     hash    run id -> run as JSON
-- KEYS runs       zset    run id by slot (ms), all entries
-- KEYS templates  hash    template id -> message and queue as JSON
-- KEYS outbox     zset    runs to be published
-- KEYS leases     zset    runs by the time in which they have to be claimed or renewed (ms)
-- KEYS policies   hash    entry -> policy as JSON
-- KEYS manual     hash    entry -> start of its latest manual run, and of the latest that succeeded
-- KEYS version    string  grows with every change from outside
-- KEYS own        zset    the entry's runs by slot (ms)
-- KEYS hours      hash    what happened in each hour
-- KEYS entry_hours hash   the same of the entry alone
-- KEYS active     zset    the entry's active runs
-- KEYS chain      zset    the entry's waiting runs
-- KEYS stopped    hash    entry -> runs whose failure has stopped its chain, parted by blanks
-- KEYS unreleased zset    lanes whose release stopped at its budget; the leader goes on with them
-- KEYS template_uses zset   templates that runs share, by the time they were last used (ms)
-- ARGV run_id
-- ARGV run                JSON: entry, task, schedule, slot, trigger, template and what else is known
-- ARGV template           as it is stored
-- ARGV db                 number of the database we are in
-- ARGV now_ms             slot time of the start
-- RETURNS "started", or "exists" when the slot has its run already
local id, run, now = ARGV[1], cjson.decode(ARGV[2]), tonumber(ARGV[5])
if redis.call('HEXISTS', KEYS[1], id) == 1 then return 'exists' end
local own = store_templates(KEYS[3], KEYS[16], { run.template }, { ARGV[3] })[id]
if own then redis.call('HSETNX', KEYS[3], own[1], own[2]) end
run.state, run.attempt, run.sends, run.created = 'waiting', 1, 0, now
redis.call('HSET', KEYS[1], id, cjson.encode(run))
redis.call('ZADD', KEYS[2], run.slot, id)
redis.call('ZADD', KEYS[9], run.slot, id)
local manual = read_json(redis.call('HGET', KEYS[7], run.entry))
manual.start = math.max(manual.start or 0, now)
redis.call('HSET', KEYS[7], run.entry, cjson.encode(manual))
redis.call('INCR', KEYS[8])
tally(KEYS[10], now, { manual = 1 })
count_up(KEYS[10], { manual = 1 })
tally(KEYS[11], now, { manual = 1 })
redis.call('ZADD', KEYS[13], run.slot + run.schedule / 1000, id)
local policy = cjson.decode(redis.call('HGET', KEYS[6], run.entry) or '{"capacity":1}')
local keys = {
  ledger = KEYS[1], templates = KEYS[3], outbox = KEYS[4], leases = KEYS[5], active = KEYS[12], chain = KEYS[13],
  stopped = KEYS[14], lane = run.entry, unreleased = KEYS[15],
}
release(keys, policy.capacity, tonumber(ARGV[4]), now)
return 'started'
