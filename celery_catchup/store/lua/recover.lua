-- Send a run again whose worker or message was lost, or whose next attempt is due; or give it up.
--
-- The leader calls it for runs whose lease has run out or whose retry is due. What came to life
-- meanwhile is left alone. A run that is lost more often than its attempts and two more is dead.
-- Where no worker has the plugin nobody claims anything: a message that was sent is taken to be
-- executed then, because a second copy would be executed too, and its chain goes on.
--
-- KEYS leader     hash    owner, epoch
-- KEYS ledger     hash    run id -> run as JSON
-- KEYS leases     zset    runs by the time in which they have to be claimed or renewed (ms)
-- KEYS retries    zset    failed runs by the time of their next attempt (ms)
-- KEYS templates  hash    template id -> message and queue as JSON
-- KEYS outbox     zset    runs to be published
-- KEYS policies   hash    entry -> policy as JSON
-- KEYS ended      zset    runs by the time they ended (ms)
-- KEYS dead       zset    dead letters by the time they died (ms)
-- KEYS paused     hash    entry -> since when it is paused
-- KEYS version    string  grows with every change from outside
-- KEYS scheduler  hash    the scheduler's watermark
-- KEYS hours      hash    what happened in each hour
-- KEYS active     zset    the lane's active runs
-- KEYS chain      zset    the lane's waiting runs
-- KEYS unreleased zset    lanes whose release stopped at its budget; the leader goes on with them
-- ARGV owner, epoch, db
-- ARGV run_id
-- ARGV claimed            "1" when some worker has the plugin
-- ARGV now_ms             0 in production: the server's own clock decides; tests pass a time
-- RETURNS "sent", "dead", "alive", "ended", "unreported", "corrupt" when it cannot be read, or "fenced" when somebody else leads
if not leads(KEYS[1], ARGV[1], ARGV[2]) then return 'fenced' end
local id, now = ARGV[4], server_now(ARGV[6])
local stored = redis.call('HGET', KEYS[2], id)
local run = read_run(stored)
if stored and not run then return 'corrupt' end
if not run or (run.state ~= 'queued' and run.state ~= 'running' and run.state ~= 'waiting') then
  redis.call('ZREM', KEYS[3], id)
  redis.call('ZREM', KEYS[4], id)
  return 'ended'
end

local keys = {
  ledger = KEYS[2], leases = KEYS[3], templates = KEYS[5], outbox = KEYS[6], ended = KEYS[8], dead = KEYS[9],
  paused = KEYS[10], version = KEYS[11], scheduler = KEYS[12], hours = KEYS[13], active = KEYS[14], chain = KEYS[15], clock = now,
  lane = lane_of(run), unreleased = KEYS[16],
}
local retry = tonumber(redis.call('ZSCORE', KEYS[4], id) or '-1')
if retry >= 0 then
  if retry > now then return 'alive' end
  redis.call('ZREM', KEYS[4], id)
  dispatch(keys, id, run, tonumber(ARGV[3]), now)
  return 'sent'
end

local lease = tonumber(redis.call('ZSCORE', KEYS[3], id) or '-1')
if lease < 0 or lease > now then return 'alive' end
local policy = cjson.decode(redis.call('HGET', KEYS[7], lane_of(run)) or '{"capacity":1,"max_attempts":1}')
if run.state == 'queued' and ARGV[5] ~= '1' then
  run.unreported = true
  conclude(keys, id, run, 'queued', policy, now)
  release_next(keys, 'queued', policy, tonumber(ARGV[3]), now)
  return 'unreported'
end
run.losses = (run.losses or 0) + 1
if run.losses > policy.max_attempts + 2 then
  run.error = run.state == 'running' and 'its workers were lost' or run.error or 'no worker claimed it'
  conclude(keys, id, run, 'dead', policy, now)
  release_next(keys, 'dead', policy, tonumber(ARGV[3]), now)
  return 'dead'
end
if run.state == 'running' then
  remember(run, 'lost', now)
  run.attempt = run.attempt + 1
end
run.owner = nil
dispatch(keys, id, run, tonumber(ARGV[3]), now)
return 'sent'
