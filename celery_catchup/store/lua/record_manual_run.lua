-- Record a manual run whose message the caller sends.
--
-- If no worker claims it within an hour, its entry is free again; the run can still be claimed.
--
-- KEYS ledger   hash    run id -> run as JSON
-- KEYS runs     zset    runs of all entries by slot (ms)
-- KEYS leases   zset    active runs by lease expiry (ms)
-- KEYS manual   hash    entry -> latest manual start and success
-- KEYS version  string  counter of changes from outside
-- KEYS own      zset    the entry's runs by slot (ms)
-- KEYS hours    hash    hourly counts
-- KEYS entry_hours hash hourly counts of the entry
-- KEYS active   zset    the entry's active runs
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- ARGV run_id
-- ARGV run              JSON: entry, task, schedule, slot, trigger and optional fields
-- ARGV now_ms           slot time of the start
-- ARGV change           the record of this change, for the audit trail
-- RETURNS 1, or 0 if there is such a run already
local id, run, now = args.run_id, cjson.decode(args.run), tonumber(args.now_ms)
if redis.call('HEXISTS', keys.ledger, id) == 1 then return 0 end
record_change()
run.state, run.attempt, run.sends, run.created, run.queued, run.template = 'queued', 1, 1, now, now, ''
record_manual(id, run, now)
redis.call('ZADD', keys.leases, server_now('0') + 3600000, id)
redis.call('ZADD', keys.active, run.slot, id)
return 1
