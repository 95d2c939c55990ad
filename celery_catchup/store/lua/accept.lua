-- Store how entries were declared when they were last accepted.
--
-- KEYS leader    hash  owner, epoch
-- KEYS accepted  hash  entry -> record of its declaration
-- ARGV owner, epoch    of the leader; owner "" for an operator, whoever leads
-- ARGV records         JSON: list of {entry, record}, record null for an entry that is gone
-- RETURNS 1, or 0 when somebody else leads
if args.owner ~= '' and not leads() then return false end
for _, change in ipairs(cjson.decode(args.records)) do
  if type(change[2]) == 'string' then
    redis.call('HSET', keys.accepted, change[1], change[2])
  else
    redis.call('HDEL', keys.accepted, change[1])
  end
end
return 1
