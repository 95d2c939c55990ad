-- Forget shared templates that no run uses: those that were not found in use since the given time.
--
-- KEYS leader         hash  owner, epoch
-- KEYS templates      hash  template id -> message and queue as JSON
-- KEYS template_uses  zset  templates that runs share, by the time they were last used (ms)
-- ARGV owner, epoch
-- ARGV used_before          those that were last used earlier are forgotten (ms, server's clock)
-- ARGV count                how many at the most
-- RETURNS how many were forgotten, or false when somebody else leads
if not leads(KEYS[1], ARGV[1], ARGV[2]) then return false end
local ids = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', '(' .. ARGV[3], 'LIMIT', 0, ARGV[4])
for _, id in ipairs(ids) do
  redis.call('HDEL', KEYS[2], id)
  redis.call('ZREM', KEYS[3], id)
end
return #ids
