-- Move watermarks by hand: entries go on behind the given instant, forwards or backwards.
--
-- The scheduler's own watermark is near the present while it is healthy, and would hide an older
-- one of an entry. So an entry that is moved back counts as resumed from there, after a pause of no
-- length; one that is paused stays paused, and goes on from there when it is resumed. The leader compares before it writes:
-- what it decided meanwhile from the old watermark is refused, and it reads again.
--
-- KEYS decided    hash    entry -> everything up to here is decided (ms)
-- KEYS paused     hash    entry -> {paused, at, …} as JSON
-- KEYS scheduler  hash    the scheduler's watermark
-- KEYS version    string  grows with every change from outside
-- ARGV at_ms              where the watermarks are to be
-- ARGV scheduler          "1" to move the scheduler's own, too
-- ARGV ...                entries
-- RETURNS 1
local at = tonumber(ARGV[1])
if ARGV[2] == '1' then redis.call('HSET', KEYS[3], 'watermark', ARGV[1]) end
local watermark = tonumber(redis.call('HGET', KEYS[3], 'watermark') or '0') or 0
for i = 3, #ARGV do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[1])
  local stored = redis.call('HGET', KEYS[2], ARGV[i])
  if stored then
    local pause = read_json(stored)
    pause.decided, pause.discard = at, false
    if not pause.paused then pause.at, pause.resumed, pause.earlier = at, at, nil end
    redis.call('HSET', KEYS[2], ARGV[i], cjson.encode(pause))
  elseif at < watermark then
    redis.call('HSET', KEYS[2], ARGV[i], cjson.encode({ paused = false, at = at, resumed = at }))
  end
end
redis.call('INCR', KEYS[4])
return 1
