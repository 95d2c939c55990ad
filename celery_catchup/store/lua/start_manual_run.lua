-- Start a manual run: record it like any other, and release it as far as the entry's policy allows.
--
-- KEYS ledger     hash    run id -> run as JSON
-- KEYS runs       zset    runs of all entries by slot (ms)
-- KEYS templates  hash    template id -> message and queue, or base and inputs, as JSON
-- KEYS outbox     zset    runs to publish
-- KEYS leases     zset    active runs by lease expiry (ms)
-- KEYS policies   hash    entry -> policy as JSON
-- KEYS manual     hash    entry -> latest manual start and success
-- KEYS version    string  counter of changes from outside
-- KEYS own        zset    the entry's runs by slot (ms)
-- KEYS hours      hash    hourly counts
-- KEYS entry_hours hash   hourly counts of the entry
-- KEYS active     zset    the entry's active runs
-- KEYS chain      zset    the entry's waiting runs
-- KEYS stopped    hash    entry -> runs whose failure stopped its chain, separated by blanks
-- KEYS unreleased zset    lanes whose release stopped at its budget; the leader continues them
-- KEYS template_uses zset   shared templates by last use (ms)
-- ARGV run_id
-- ARGV run                JSON: entry, task, schedule, slot, trigger, template and optional fields
-- ARGV db                 number of this database
-- ARGV now_ms             slot time of the start
-- ARGV keep               "1" if slots that are still to be caught up stay so
-- ARGV ...                the parts of the template: an id and the text that is stored, for each
-- RETURNS "started", or "exists" if the slot has its run already
local id, run, now = args.run_id, cjson.decode(args.run), tonumber(args.now_ms)
if redis.call('HEXISTS', keys.ledger, id) == 1 then return 'exists' end
local ids, texts = {}, {}
for i = first_arg, #ARGV, 2 do ids[#ids + 1], texts[#texts + 1] = ARGV[i], ARGV[i + 1] end
store_own_template(store_templates(ids, texts)[id])
run.state, run.attempt, run.sends, run.created = 'waiting', 1, 0, now
record_manual(id, run, now, args.keep)
redis.call('ZADD', keys.chain, place_of(run), id)
keys.lane = run.entry
release(policy_of(run.entry).capacity, now)
return 'started'
