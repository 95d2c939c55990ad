-- Check whether a script of this client may push to a queue; push nothing.
--
-- A script that is refused half-way keeps what it wrote before, so rights, database and type
-- are checked before the first push.
--
-- ARGV queue  key of the list that the messages go to; not among KEYS, as it is not in our database
-- ARGV db     number of the broker's database
-- RETURNS "", or what stands in the way
local queue, db = ARGV[1], ARGV[2]
local allowed = redis.acl_check_cmd or function() return true end -- servers before 7.0 cannot tell
if not allowed('LPUSH', queue, '') then return 'the user of the state may not LPUSH to it' end
redis.call('SELECT', db)
if allowed('TYPE', queue) then
  local kind = redis.call('TYPE', queue).ok
  if kind ~= 'none' and kind ~= 'list' then return 'there is a ' .. kind .. ' under its name' end
end
return ''
