-- Move watermarks by hand, forwards or backwards: entries go on after the given instant.
--
-- The scheduler's watermark is near the present, and would hide an older watermark of an entry. So an entry that is
-- moved back counts as resumed from there. A paused entry stays paused, and goes on from there when it is resumed.
-- A manual run counts no more for slots after the new watermark.
-- The leader's commit compares watermarks: decisions from the old one are refused, and the leader reads again.
--
-- KEYS decided    hash    entry -> its watermark (ms)
-- KEYS paused     hash    entry -> {paused, at, …} as JSON
-- KEYS manual     hash    entry -> latest manual start and success
-- KEYS scheduler  hash    the scheduler's watermark
-- KEYS version    string  counter of changes from outside
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- ARGV at_ms              the new watermark
-- ARGV scheduler          "1" to move the scheduler's, too
-- ARGV change           the record of this change, for the audit trail
-- ARGV ...                entries
-- RETURNS 1
record_change()
local at = tonumber(args.at_ms)
if args.scheduler == '1' then redis.call('HSET', keys.scheduler, 'watermark', args.at_ms) end
local watermark = tonumber(redis.call('HGET', keys.scheduler, 'watermark') or '0') or 0
for i = first_arg, #ARGV do
  redis.call('HSET', keys.decided, ARGV[i], args.at_ms)
  local manual = read_json(redis.call('HGET', keys.manual, ARGV[i]))
  if (manual.start or 0) > at then
    manual.start, manual.run = nil, nil
    redis.call('HSET', keys.manual, ARGV[i], cjson.encode(manual))
  end
  local stored = redis.call('HGET', keys.paused, ARGV[i])
  if stored then
    local pause = read_json(stored)
    pause.decided, pause.discard = at, false
    if not pause.paused then pause.at, pause.resumed, pause.earlier = at, at, nil end
    redis.call('HSET', keys.paused, ARGV[i], cjson.encode(pause))
  elseif at < watermark then
    redis.call('HSET', keys.paused, ARGV[i], cjson.encode({ paused = false, at = at, resumed = at }))
  end
end
redis.call('INCR', keys.version)
return 1
