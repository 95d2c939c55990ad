-- Import entries of another scheduler: entries that are new here go on after their last run.
--
-- An entry that is known here is left alone, so that repeating it changes nothing. In a new store, the scheduler's
-- watermark begins at the oldest of these runs. In another store it is near the present and would hide missed slots,
-- so the entry counts as resumed from its last run.
--
-- KEYS meta        hash    schema version of the stored state
-- KEYS scheduler   hash    watermark
-- KEYS first_seen  hash    entry -> instant (ms)
-- KEYS anchors     hash    entry -> phase of its intervals (ms)
-- KEYS decided     hash    entry -> its watermark (ms)
-- KEYS paused      hash    entry -> {paused, at, …} as JSON
-- KEYS last_runs   hash    entry without a policy -> last run (ms) and count
-- KEYS version     string  counter of changes from outside
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- ARGV schema              version to store if there is none
-- ARGV watermark           the oldest of the last runs (ms)
-- ARGV entries             JSON: list of {name, at, count, policy}; "at" in ms, "policy" whether it has one
-- ARGV change           the record of this change, for the audit trail
-- RETURNS names of the entries that were new
local meta, scheduler, first_seen, anchors = keys.meta, keys.scheduler, keys.first_seen, keys.anchors
local decided, paused, last_runs = keys.decided, keys.paused, keys.last_runs
redis.call('HSETNX', meta, 'schema', args.schema)
redis.call('HSETNX', scheduler, 'watermark', args.watermark)
local watermark = tonumber(redis.call('HGET', scheduler, 'watermark')) or 0
local new = {}
for _, entry in ipairs(cjson.decode(args.entries)) do
  local at = string.format('%.0f', entry.at)
  if not entry.policy then
    if redis.call('HSETNX', last_runs, entry.name, at .. ' ' .. string.format('%.0f', entry.count)) == 1 then
      new[#new + 1] = entry.name
    end
  elseif redis.call('HSETNX', first_seen, entry.name, at) == 1 then
    redis.call('HSETNX', anchors, entry.name, at)
    redis.call('HSET', decided, entry.name, at)
    if entry.at < watermark then
      redis.call('HSET', paused, entry.name, cjson.encode({ paused = false, at = entry.at, resumed = entry.at }))
    end
    new[#new + 1] = entry.name
  end
end
if #new > 0 then
  record_change()
  redis.call('INCR', keys.version)
end
return new
