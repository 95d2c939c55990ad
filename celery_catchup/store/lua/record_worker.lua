-- Record that a worker with the plugin is alive and which queues it consumes; forget silent workers.
--
-- KEYS workers   zset  node name by the time it was last seen (ms)
-- KEYS consumers hash  "plugin <queue>" -> when a worker with the plugin was last seen to consume it (ms); kept;
--                      "solo <worker>" -> the queues of a worker that answers no question while it executes a task
-- KEYS contact   hash  since when the store is reachable
-- ARGV worker          its node name
-- ARGV solo            what to store for a worker of the pool "solo", "" for others
-- ARGV forget_ms       how long a silent worker is remembered
-- ARGV ttl_ms          how long a run's lease lasts
-- ARGV now_ms          0 for the server's clock
-- ARGV ...             the queues that it consumes
-- RETURNS the number of remembered workers
local now = server_now(args.now_ms)
note_contact(now, tonumber(args.ttl_ms))
redis.call('ZADD', keys.workers, now, args.worker)
if args.solo ~= '' then redis.call('HSET', keys.consumers, 'solo ' .. args.worker, args.solo) end
redis.call('ZREMRANGEBYSCORE', keys.workers, '-inf', now - tonumber(args.forget_ms))
for i = first_arg, #ARGV do redis.call('HSET', keys.consumers, 'plugin ' .. ARGV[i], string.format('%.0f', now)) end
return redis.call('ZCARD', keys.workers)
