-- Commit a part of a backfill: its runs join the backfill's lane, and its cursor moves.
--
-- A given run that has ended is attempted again: the planner has chosen what to reprocess. Runs in flight are left
-- alone.
--
-- KEYS leader     hash  owner, epoch
-- KEYS backfills  hash  backfill id -> backfill as JSON
-- KEYS policies   hash  lane -> policy as JSON
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS runs       zset  runs of all entries by slot (ms)
-- KEYS templates  hash  template id -> message and queue, or base and inputs, as JSON
-- KEYS outbox     zset  runs to publish
-- KEYS leases     zset  active runs by lease expiry (ms)
-- KEYS ended      zset  ended runs by end (ms)
-- KEYS dead       zset  dead letters by end (ms)
-- KEYS own        zset  the entry's runs by slot (ms)
-- KEYS skips      zset  the entry's skipped slots, as spans by last slot (ms)
-- KEYS hours      hash  hourly counts
-- KEYS entry_hours hash hourly counts of the entry
-- KEYS active     zset  the lane's active runs
-- KEYS chain      zset  the lane's waiting runs
-- KEYS unreleased zset  lanes whose release stopped at its budget; the leader continues them
-- KEYS meta       hash the limit `max_active`
-- KEYS catchup_active zset catch-up and backfill runs that are queued or running, if there is a limit
-- KEYS catchup_waiting zset lanes that wait for a place among them
-- KEYS template_uses zset shared templates by last use (ms)
-- ARGV owner, epoch, db
-- ARGV now_ms           slot time
-- ARGV lane             name of the backfill's lane
-- ARGV expected         the cursor that the plan started from, or ""
-- ARGV part             JSON: {id, cursor, skipped, complete, policy, templates, runs: [{id, run}], covered: number of
--                       slots that a run stands for, replaced: stored spans, skips: [{last slot, span as text}]}
-- RETURNS {"ok", number of new runs}, {"stale"}, {"stopped", state} if it does not run, or false if another beat leads
if not leads() then return false end
local now, lane, part = tonumber(args.now_ms), args.lane, cjson.decode(args.part)
local stored = redis.call('HGET', keys.backfills, part.id)
local backfill = stored and read_json(stored)
if not backfill or backfill.state ~= 'running' then return { 'stopped', backfill and backfill.state or 'gone' } end
local cursor = backfill.cursor and string.format('%d', backfill.cursor) or ''
if cursor ~= args.expected then return { 'stale' } end

redis.call('HSET', keys.policies, lane, part.policy)
local ids, texts = {}, {}
for id, text in pairs(part.templates) do ids[#ids + 1], texts[#texts + 1] = id, text end
local own_templates = store_templates(ids, texts)
local count = 0
for _, item in ipairs(part.runs) do
  local known = load_run(item.id)
  local run = known or item.run
  if not known then
    run.attempt, run.sends, run.created, run.epoch = 1, 0, now, tonumber(args.epoch)
  elseif not is_open(run) then
    remember(run, run.state, run.finished, run.error)
    run.attempt, run.failures, run.losses, run.finished, run.error = run.attempt + 1, 0, 0, nil, nil
    run.replaced = nil
    if run_of_template(run.template) == item.id then redis.call('HDEL', keys.templates, run.template) end
    run.template, run.trigger = item.run.template, item.run.trigger
    redis.call('ZREM', keys.ended, item.id)
    redis.call('ZREM', keys.dead, item.id)
  else
    run = nil
  end
  if run then
    store_own_template(own_templates[item.id])
    run.state, run.lane = 'waiting', lane
    store_run(item.id, run)
    list_run(item.id, run)
    -- in the order in which they were planned, which may be newest first
    redis.call('ZADD', keys.chain, backfill.dispatched + count, item.id)
    count = count + 1
  end
end
backfill.cursor, backfill.dispatched, backfill.skipped = part.cursor, backfill.dispatched + count, backfill.skipped + part.skipped
backfill.decided = part.complete
for _, text in ipairs(part.replaced) do redis.call('ZREM', keys.skips, text) end
for _, skip in ipairs(part.skips) do redis.call('ZADD', keys.skips, skip[1], skip[2]) end
local counts = { backfill = count > 0 and count or nil, ['skipped:covered'] = part.covered > 0 and part.covered or nil }
if next(counts) then count_all(now, counts) end
redis.call('HSET', keys.backfills, part.id, cjson.encode(backfill))
keys.lane = lane
release(backfill.max_active, now)
return { 'ok', count }
