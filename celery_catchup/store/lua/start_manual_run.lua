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
-- KEYS meta       hash the limit `max_active`
-- KEYS catchup_active zset catch-up and backfill runs that are queued or running, if there is a limit
-- KEYS catchup_waiting zset lanes that wait for a place among them
-- KEYS template_uses zset   shared templates by last use (ms)
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- ARGV run_id
-- ARGV run                JSON: entry, task, schedule, slot, trigger, template and optional fields
-- ARGV db                 number of this database
-- ARGV now_ms             slot time of the start
-- ARGV keep               "1" if slots that are still to be caught up stay so
-- ARGV change           the record of this change, for the audit trail
-- ARGV ...                the parts of the template: an id and the text that is stored, for each
-- RETURNS "started", or "exists" if the slot has its run already
local id, run, now = args.run_id, cjson.decode(args.run), tonumber(args.now_ms)
if redis.call('HEXISTS', keys.ledger, id) == 1 then return 'exists' end
record_change()
local ids, texts = {}, {}
for i = first_arg, #ARGV, 2 do ids[#ids + 1], texts[#texts + 1] = ARGV[i], ARGV[i + 1] end
store_own_template(store_templates(ids, texts)[id])
run.state, run.attempt, run.sends, run.created = 'waiting', 1, 0, now
record_manual(id, run, now, args.keep)
keys.lane = run.entry
local capacity = policy_of(run.entry).capacity
if capacity < 0 then -- it waits for no other
  start(id, run, place_of(run), now)
else
  redis.call('ZADD', keys.chain, place_of(run), id)
  release(capacity, now)
end
return 'started'
