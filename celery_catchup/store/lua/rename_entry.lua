-- Rename an entry: the new name goes on where the old one stopped.
--
-- The state of the old name moves to the new one; its runs keep the old name, which is part of their identity. Slots
-- missed in between count as those of a resumed entry, because the scheduler's watermark has passed them.
--
-- KEYS first_seen    hash    entry -> instant (ms)
-- KEYS anchors       hash    entry -> phase of its intervals (ms)
-- KEYS fingerprints  hash    entry -> what its schedule looked like
-- KEYS changed       hash    entry -> since when the current schedule holds (ms)
-- KEYS decided       hash    entry -> its watermark (ms)
-- KEYS manual        hash    entry -> latest manual start and success
-- KEYS paused        hash    entry -> {paused, at, …} as JSON
-- KEYS left_off      hash    entry that is not declared any more -> up to where it is decided (ms)
-- KEYS scheduler     hash    the scheduler's watermark
-- KEYS version       string  counter of changes from outside
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- ARGV old, new
-- ARGV change           the record of this change, for the audit trail
-- RETURNS 1, or 0 if nothing is known of the old name
local old, new = args.old, args.new
if redis.call('HEXISTS', keys.first_seen, old) == 0 then return 0 end
record_change()
for _, key in ipairs({ keys.first_seen, keys.anchors, keys.changed, keys.decided, keys.manual, keys.paused }) do
  local value = redis.call('HGET', key, old)
  if value then
    redis.call('HSET', key, new, value)
    redis.call('HDEL', key, old)
  end
end
redis.call('HDEL', keys.fingerprints, old)
redis.call('HDEL', keys.left_off, old)
-- The watermark of an entry that has never had a slot is its first sight.
local decided = tonumber(redis.call('HGET', keys.decided, new) or redis.call('HGET', keys.first_seen, new))
local watermark = tonumber(redis.call('HGET', keys.scheduler, 'watermark') or '0') or 0
if decided and decided < watermark and redis.call('HEXISTS', keys.paused, new) == 0 then
  redis.call('HSET', keys.paused, new, cjson.encode({ paused = false, at = decided, resumed = decided }))
end
redis.call('INCR', keys.version)
return 1
