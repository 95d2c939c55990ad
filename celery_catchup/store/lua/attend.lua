-- Note that a worker with the plugin is alive, and forget those that have been silent for long.
--
-- KEYS workers   zset  node name by the time it was last seen (ms)
-- ARGV worker          its node name
-- ARGV forget_ms       how long a silent one is remembered
-- ARGV now_ms          0 in production
-- RETURNS how many workers are remembered
local now = server_now(ARGV[3])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[2]))
return redis.call('ZCARD', KEYS[1])
