-- Claim the next notification of a receiver that is due, so that no other beat sends it at the same time.
--
-- KEYS leader       hash  owner, epoch
-- KEYS notices      hash  receiver and notification -> notification, attempts and time of queueing as JSON
-- KEYS notices_due  zset  notifications by when to send them (ms, server's clock)
-- ARGV owner, epoch
-- ARGV receiver           the beginning of the receiver's notifications
-- ARGV claim_ms           after this time it is due again, if this beat does not settle it
-- RETURNS {name, notification as JSON, attempts before this one, ms since it was queued}, an empty list if none is due,
--         or false if another beat leads
if not leads() then return false end
local now = server_now('0')
for _, name in ipairs(redis.call('ZRANGEBYSCORE', keys.notices_due, '-inf', now, 'LIMIT', 0, 2000)) do
  if string.sub(name, 1, #args.receiver) == args.receiver then
    local record = read_json(redis.call('HGET', keys.notices, name))
    if type(record.notice) == 'string' then
      local attempts, queued = tonumber(record.attempts) or 0, tonumber(record.queued) or now
      record.attempts = attempts + 1
      redis.call('HSET', keys.notices, name, cjson.encode(record))
      redis.call('ZADD', keys.notices_due, now + tonumber(args.claim_ms), name)
      return { name, record.notice, attempts, math.max(0, now - queued) }
    end
    redis.call('ZREM', keys.notices_due, name)
    redis.call('HDEL', keys.notices, name)
  end
end
return {}
