-- Forget shared templates that were not used since the given time.
--
-- KEYS leader         hash  owner, epoch
-- KEYS templates      hash  template id -> message and queue, or base and inputs, as JSON
-- KEYS template_uses  zset  shared templates by last use (ms)
-- ARGV owner, epoch
-- ARGV used_before          forget templates that were last used earlier (ms, server's clock)
-- ARGV count                most templates to forget
-- RETURNS the number of forgotten templates, or false if another beat leads
if not leads() then return false end
local ids = redis.call('ZRANGEBYSCORE', keys.template_uses, '-inf', '(' .. args.used_before, 'LIMIT', 0, args.count)
for _, id in ipairs(ids) do
  redis.call('HDEL', keys.templates, id)
  redis.call('ZREM', keys.template_uses, id)
end
return #ids
