-- Queue notifications, and record in the same step what was reported.
--
-- A notification that waits already is left alone. Beyond the limit, notifications are dropped and counted: a receiver
-- that is away for long must not fill the server.
--
-- KEYS leader       hash  owner, epoch
-- KEYS notices      hash  receiver and notification -> notification, attempts and time of queueing as JSON
-- KEYS notices_due  zset  notifications by when to send them (ms, server's clock)
-- KEYS told         hash  kind and entry -> what was reported, as JSON
-- KEYS hours        hash  hourly counts, and counts since the beginning
-- ARGV owner, epoch
-- ARGV notices            JSON: list of {name, notification as JSON}
-- ARGV told               JSON: list of {field, text, or false to remove it}
-- ARGV most               notifications to keep
-- RETURNS the number of notifications that were dropped, or false if another beat leads
if not leads() then return false end
local now, room, dropped = server_now('0'), tonumber(args.most) - redis.call('ZCARD', keys.notices_due), 0
for _, one in ipairs(cjson.decode(args.notices)) do
  if redis.call('HEXISTS', keys.notices, one[1]) == 0 then
    if room > 0 then
      room = room - 1
      redis.call('HSET', keys.notices, one[1], cjson.encode({ notice = one[2], queued = now, attempts = 0 }))
      redis.call('ZADD', keys.notices_due, now, one[1])
    else
      dropped = dropped + 1
    end
  end
end
for _, one in ipairs(cjson.decode(args.told)) do
  if one[2] then
    redis.call('HSET', keys.told, one[1], one[2])
  else
    redis.call('HDEL', keys.told, one[1])
  end
end
if dropped > 0 then count_up({ notices_dropped = dropped }) end
return dropped
