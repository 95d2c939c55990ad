-- Store how entries were declared when they were last accepted.
--
-- KEYS leader    hash  owner, epoch
-- KEYS accepted  hash  entry -> record of its declaration
-- ARGV owner, epoch    of the leader; owner "" for an operator, whoever leads
-- ARGV records         JSON: list of {entry, record}, record null for an entry that is gone
-- RETURNS 1, or 0 when somebody else leads
if ARGV[1] ~= '' and not leads(KEYS[1], ARGV[1], ARGV[2]) then return 0 end
for _, change in ipairs(cjson.decode(ARGV[3])) do
  if type(change[2]) == 'string' then
    redis.call('HSET', KEYS[2], change[1], change[2])
  else
    redis.call('HDEL', KEYS[2], change[1])
  end
end
return 1
