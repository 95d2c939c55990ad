-- Pause an entry: no slot of it is decided until it is resumed.
--
-- KEYS paused     hash    entry -> {paused, at, decided, reason} as JSON
-- KEYS version    string  grows with every change from outside
-- KEYS scheduler  hash    the scheduler's watermark
-- ARGV entry
-- ARGV reason             for people, or ""
-- ARGV now_ms             slot time
-- RETURNS 1, or 0 when it is paused already
local before = read_json(redis.call('HGET', KEYS[1], ARGV[1]))
if before.paused then return 0 end
-- A resume that no beat has seen yet is undone: what was missed before it is still missed.
local at = before.at or tonumber(ARGV[3])
local decided = before.decided or before.at or decided_until(KEYS[3], at)
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode({ paused = true, at = at, decided = decided, reason = ARGV[2] }))
redis.call('INCR', KEYS[2])
return 1
