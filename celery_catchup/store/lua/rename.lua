-- Let an entry go on where another one stopped: it has got another name.
--
-- What is known of the old name becomes known of the new one; its runs keep their name, which is
-- part of their identity. Slots missed in between count as those of an entry that is resumed,
-- because the scheduler's own watermark has passed them.
--
-- KEYS first_seen    hash    entry -> instant (ms)
-- KEYS anchors       hash    entry -> phase of its intervals (ms)
-- KEYS fingerprints  hash    entry -> what its schedule looked like
-- KEYS changed       hash    entry -> since when the current schedule holds (ms)
-- KEYS decided       hash    entry -> everything up to here is decided (ms)
-- KEYS manual        hash    entry -> start of its latest manual run, and of the latest that succeeded
-- KEYS paused        hash    entry -> {paused, at, …} as JSON
-- KEYS left_off      hash    entry that is not declared any more -> up to where it is decided (ms)
-- KEYS scheduler     hash    the scheduler's watermark
-- KEYS version       string  grows with every change from outside
-- ARGV old, new
-- RETURNS 1, or 0 when nothing is known of the old name
local old, new = ARGV[1], ARGV[2]
if redis.call('HEXISTS', KEYS[1], old) == 0 then return 0 end
for _, key in ipairs({ KEYS[1], KEYS[2], KEYS[4], KEYS[5], KEYS[6], KEYS[7] }) do
  local value = redis.call('HGET', key, old)
  if value then
    redis.call('HSET', key, new, value)
    redis.call('HDEL', key, old)
  end
end
redis.call('HDEL', KEYS[3], old)
redis.call('HDEL', KEYS[8], old)
-- Of an entry that has never had a slot nothing was decided since its first sight.
local decided = tonumber(redis.call('HGET', KEYS[5], new) or redis.call('HGET', KEYS[1], new))
local watermark = tonumber(redis.call('HGET', KEYS[9], 'watermark') or '0') or 0
if decided and decided < watermark and redis.call('HEXISTS', KEYS[7], new) == 0 then
  redis.call('HSET', KEYS[7], new, cjson.encode({ paused = false, at = decided, resumed = decided }))
end
redis.call('INCR', KEYS[10])
return 1
