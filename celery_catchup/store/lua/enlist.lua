-- Record a manual run whose message the caller sends.
--
-- When no worker has claimed it after an hour, its entry is free again; the run can still be claimed.
--
-- KEYS ledger   hash    run id -> run as JSON
-- KEYS runs     zset    run id by slot (ms), all entries
-- KEYS leases   zset    runs by the time in which they have to be claimed or renewed (ms)
-- KEYS manual   hash    entry -> start of its latest manual run, and of the latest that succeeded
-- KEYS version  string  grows with every change from outside
-- KEYS own      zset    the entry's runs by slot (ms)
-- KEYS hours    hash    what happened in each hour
-- KEYS entry_hours hash the same of the entry alone
-- KEYS active   zset    the entry's active runs
-- ARGV run_id
-- ARGV run              JSON: entry, task, schedule, slot, trigger and what else is known
-- ARGV now_ms           slot time of the start
-- RETURNS 1, or 0 when there is such a run already
local id, run, now = args.run_id, cjson.decode(args.run), tonumber(args.now_ms)
if redis.call('HEXISTS', keys.ledger, id) == 1 then return 0 end
run.state, run.attempt, run.sends, run.created, run.queued, run.template = 'queued', 1, 1, now, now, ''
record_manual(id, run, now)
redis.call('ZADD', keys.leases, server_now('0') + 3600000, id)
redis.call('ZADD', keys.active, run.slot, id)
return 1
