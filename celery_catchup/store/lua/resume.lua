-- Resume an entry; what it missed meanwhile is decided by the next tick of the leader.
--
-- KEYS paused   hash    entry -> {paused, at, resumed, decided, discard, earlier} as JSON; the leader removes it
-- KEYS version  string  grows with every change from outside
-- ARGV entry
-- ARGV discard          "1" to skip what was missed, whatever the policy says
-- ARGV now_ms           slot time, or 0 for the server's own clock
-- RETURNS 1, or 0 when it is not paused
local before = read_json(redis.call('HGET', KEYS[1], ARGV[1]))
if not before.paused then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode({
  paused = false, at = before.at, resumed = math.max(server_now(ARGV[3]), before.at or 0), decided = before.decided,
  discard = ARGV[2] == '1', earlier = before.earlier,
}))
redis.call('INCR', KEYS[2])
return 1
