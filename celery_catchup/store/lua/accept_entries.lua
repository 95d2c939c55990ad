-- Store the accepted declarations of entries.
--
-- KEYS leader    hash  owner, epoch
-- KEYS accepted  hash  entry -> record of its declaration
-- ARGV owner, epoch    the fence of the leader; owner "" for an operator, whichever beat leads
-- ARGV records         JSON: list of {entry, record}, record null for a removed entry
-- RETURNS 1, or false if another beat leads
if args.owner ~= '' and not leads() then return false end
for _, change in ipairs(cjson.decode(args.records)) do
  if type(change[2]) == 'string' then
    redis.call('HSET', keys.accepted, change[1], change[2])
  else
    redis.call('HDEL', keys.accepted, change[1])
  end
end
return 1
