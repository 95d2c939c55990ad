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
local id, run, now = args.run_id, cjson.decode(args.run), tonumber(args.now_ms)
if redis.call('HEXISTS', keys.ledger, id) == 1 then return 'exists' end
store_own_template(store_templates({ run.template }, { args.template })[id])
run.state, run.attempt, run.sends, run.created = 'waiting', 1, 0, now
record_manual(id, run, now)
redis.call('ZADD', keys.chain, place_of(run), id)
keys.lane = run.entry
release(policy_of(run.entry).capacity, now)
return 'started'
