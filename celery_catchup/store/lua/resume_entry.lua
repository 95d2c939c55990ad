-- Resume an entry; the leader's next tick decides the slots that it missed.
--
-- KEYS paused   hash    entry -> {paused, at, resumed, decided, discard, held, held_at, earlier} as JSON; the
--                       leader removes it
-- KEYS version  string  counter of changes from outside
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- ARGV entry
-- ARGV discard          "1" to skip the missed slots, whatever the policy says
-- ARGV now_ms           slot time, or 0 for the server's clock
-- ARGV change           the record of this change, for the audit trail
-- RETURNS 1, or 0 if it is not paused
local before = read_json(redis.call('HGET', keys.paused, args.entry))
if not before.paused then return 0 end
record_change()
redis.call('HSET', keys.paused, args.entry, cjson.encode({
  paused = false, at = before.at, resumed = math.max(server_now(args.now_ms), before.at or 0), decided = before.decided,
  discard = args.discard == '1', held = before.held, held_at = before.held_at, earlier = before.earlier,
}))
redis.call('INCR', keys.version)
return 1
