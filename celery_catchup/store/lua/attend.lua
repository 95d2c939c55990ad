-- Note that a worker with the plugin is alive and which queues it consumes; forget workers that are long silent.
--
-- KEYS workers   zset  node name by the time it was last seen (ms)
-- KEYS consumers hash  "plugin <queue>" -> when a worker with the plugin was last seen to consume it (ms); kept
-- KEYS contact   hash  since when the store can be reached
-- ARGV worker          its node name
-- ARGV forget_ms       how long a silent one is remembered
-- ARGV ttl_ms          how long a run's lease lasts
-- ARGV now_ms          0 in production
-- ARGV ...             names of the queues that it consumes
-- RETURNS how many workers are remembered
local now = server_now(ARGV[4])
note_contact(KEYS[3], now, tonumber(ARGV[3]))
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[2]))
for i = 5, #ARGV do redis.call('HSET', KEYS[2], 'plugin ' .. ARGV[i], string.format('%.0f', now)) end
return redis.call('ZCARD', KEYS[1])
