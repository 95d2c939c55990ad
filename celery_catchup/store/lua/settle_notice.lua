-- Record that a notification was sent, is to be sent again later, or is dropped.
--
-- The caller need not lead any more: it has sent the message. A digest to which something was added meanwhile stays.
--
-- KEYS notices      hash  receiver and notification -> notification, attempts and time of queueing as JSON
-- KEYS notices_due  zset  notifications by when to send them (ms, server's clock)
-- KEYS hours        hash  hourly counts, and counts since the beginning
-- ARGV name
-- ARGV outcome            sent, failed or dropped
-- ARGV attempt            the number of the attempt
-- ARGV retry_ms           when it is sent again after a failure
-- RETURNS 1, or 0 if it was settled before
if redis.call('HEXISTS', keys.notices, args.name) == 0 then return 0 end
local changed = false
if string.sub(args.name, -7) == ':digest' then
  changed = read_json(redis.call('HGET', keys.notices, args.name)).attempts ~= tonumber(args.attempt)
end
count_up({ ['notices_' .. args.outcome] = 1 })
if changed then return 1 end
if args.outcome == 'failed' then
  redis.call('ZADD', keys.notices_due, server_now('0') + tonumber(args.retry_ms), args.name)
else
  redis.call('ZREM', keys.notices_due, args.name)
  redis.call('HDEL', keys.notices, args.name)
end
return 1
