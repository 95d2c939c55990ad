-- Forget shared templates that no run uses: those that were not found in use since the given time.
--
-- KEYS leader         hash  owner, epoch
-- KEYS templates      hash  template id -> message and queue as JSON
-- KEYS template_uses  zset  templates that runs share, by the time they were last used (ms)
-- ARGV owner, epoch
-- ARGV used_before          those that were last used earlier are forgotten (ms, server's clock)
-- ARGV count                how many at the most
-- RETURNS how many were forgotten, or false when somebody else leads
if not leads() then return false end
local ids = redis.call('ZRANGEBYSCORE', keys.template_uses, '-inf', '(' .. args.used_before, 'LIMIT', 0, args.count)
for _, id in ipairs(ids) do
  redis.call('HDEL', keys.templates, id)
  redis.call('ZREM', keys.template_uses, id)
end
return #ids
