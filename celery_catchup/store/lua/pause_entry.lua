-- Pause an entry: no slot of it is decided until it is resumed.
--
-- KEYS paused     hash    entry -> {paused, at, decided, reason, by, earlier} as JSON
-- KEYS version    string  counter of changes from outside
-- KEYS scheduler  hash    the scheduler's watermark
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- ARGV entry
-- ARGV reason             for display, or ""
-- ARGV by                 the person, for display, or ""
-- ARGV now_ms             slot time
-- ARGV change           the record of this change, for the audit trail
-- RETURNS 1, or 0 if it is paused already
local before = read_json(redis.call('HGET', keys.paused, args.entry))
if before.paused then return 0 end
record_change()
local at = tonumber(args.now_ms)
local decided = before.decided or before.at or decided_until(at)
redis.call('HSET', keys.paused, args.entry, cjson.encode({
  paused = true, at = at, decided = decided, reason = args.reason, by = args.by, earlier = unseen_pauses(before),
  held_at = before.held_at,
}))
redis.call('INCR', keys.version)
return 1
