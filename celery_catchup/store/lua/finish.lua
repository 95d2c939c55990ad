-- Record how a run ended, and release the next of its chain in the same step.
--
-- Idempotent: ending an ended run changes nothing. A worker whose lease was taken by another
-- is refused: what it reports did not happen, as far as the ledger is concerned.
--
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS leases     zset  run id by lease expiry (ms)
-- KEYS templates  hash  template id -> message and queue as JSON
-- KEYS outbox     zset  runs to be published
-- KEYS policies   hash  entry -> policy as JSON
-- KEYS active     zset  the entry's active runs
-- KEYS chain      zset  the entry's waiting runs
-- ARGV run_id
-- ARGV owner            who executes it; "" for a message that never started (revoked, expired)
-- ARGV state            succeeded, failed or revoked
-- ARGV error            what went wrong, in a line, or ""
-- ARGV db               number of the database we are in
-- ARGV now_ms           0 in production
-- RETURNS {"recorded", released ids…}, {"superseded"}, {"ended"} or {"unknown"}
local id, owner, state = ARGV[1], ARGV[2], ARGV[3]
local stored = redis.call('HGET', KEYS[1], id)
if not stored then return { 'unknown' } end
local run = cjson.decode(stored)
if run.state ~= 'queued' and run.state ~= 'running' and run.state ~= 'waiting' then return { 'ended' } end
if owner ~= '' and run.owner ~= owner then return { 'superseded' } end
if owner == '' and run.state == 'running' then return { 'superseded' } end

local now = server_now(ARGV[6])
run.state, run.finished, run.owner = state, now, nil
if ARGV[4] ~= '' then run.error = ARGV[4] end
redis.call('HSET', KEYS[1], id, cjson.encode(run))
redis.call('ZREM', KEYS[2], id)
redis.call('ZREM', KEYS[6], id)
redis.call('ZREM', KEYS[7], id)

local policy = cjson.decode(redis.call('HGET', KEYS[5], run.entry) or '{"capacity":1}')
if state ~= 'succeeded' and policy.on_failure == 'stop' then return { 'recorded' } end
local keys = { ledger = KEYS[1], templates = KEYS[3], outbox = KEYS[4], active = KEYS[6], chain = KEYS[7] }
local released = release(keys, policy.capacity, tonumber(ARGV[5]), now)
table.insert(released, 1, 'recorded')
return released
