-- Whether a script of this client may push to a queue. Nothing is pushed.
--
-- A script that is refused half-way keeps what it wrote before, so rights, database and type
-- are looked at before the first one.
--
-- KEYS queue  list    where the messages go
-- ARGV db     number of the broker's database
-- RETURNS "", or what stands in the way
local allowed = redis.acl_check_cmd or function() return true end -- servers before 7.0 cannot tell
if not allowed('LPUSH', KEYS[1], '') then return 'the user of the state may not LPUSH to it' end
redis.call('SELECT', ARGV[1])
if allowed('TYPE', KEYS[1]) then
  local kind = redis.call('TYPE', KEYS[1]).ok
  if kind ~= 'none' and kind ~= 'list' then return 'there is a ' .. kind .. ' under its name' end
end
return ''
