-- Store from where the slots of entries are judged, and forget overdue slots of entries without a deadline.
--
-- KEYS leader     hash  owner, epoch
-- KEYS deadlines  hash  entry -> up to where its slots are judged, as JSON
-- KEYS overdue    zset  overdue slots as JSON [entry, schedule, slot], by deadline (ms)
-- ARGV owner, epoch
-- ARGV records          JSON: list of {entry, its record, or false to forget it}
-- ARGV settled          JSON: list of members of `overdue` to remove
-- RETURNS 1, or false if another beat leads
if not leads() then return false end
for _, one in ipairs(cjson.decode(args.records)) do
  if one[2] then
    redis.call('HSET', keys.deadlines, one[1], one[2])
  else
    redis.call('HDEL', keys.deadlines, one[1])
  end
end
for _, member in ipairs(cjson.decode(args.settled)) do redis.call('ZREM', keys.overdue, member) end
return 1
