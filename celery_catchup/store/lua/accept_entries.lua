-- Store the accepted declarations of entries.
--
-- KEYS leader    hash  owner, epoch
-- KEYS accepted  hash  entry -> record of its declaration
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- ARGV owner, epoch    the fence of the leader; owner "" for an operator, whichever beat leads
-- ARGV records         JSON: list of {entry, record}, record null for a removed entry
-- ARGV change           the record of this change, for the audit trail, or "" if the leader makes it
-- RETURNS 1, or false if another beat leads
if args.owner ~= '' and not leads() then return false end
record_change()
for _, change in ipairs(cjson.decode(args.records)) do
  if type(change[2]) == 'string' then
    redis.call('HSET', keys.accepted, change[1], change[2])
  else
    redis.call('HDEL', keys.accepted, change[1])
  end
end
return 1
