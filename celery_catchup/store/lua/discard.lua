-- Take a run off the dead letters; it stays in the ledger as failed.
--
-- KEYS ledger   hash  run id -> run as JSON
-- KEYS dead     zset  dead letters by the time they died (ms)
-- KEYS letters  hash  run id -> what is known of its failure, as JSON
-- ARGV run_id
-- RETURNS 1, or 0 when it is no dead letter
local stored = redis.call('HGET', KEYS[1], ARGV[1])
local run = read_run(stored)
if not run or run.state ~= 'dead' then return 0 end
run.state = 'failed'
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(run))
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
return 1
