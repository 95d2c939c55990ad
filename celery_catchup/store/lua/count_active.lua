-- Count catch-up and backfill runs among these that are queued or running, and no others.
--
-- It corrects what a worker of an earlier version, or the time before there was a limit, has left uncounted.
--
-- KEYS leader         hash  owner, epoch
-- KEYS meta           hash  the limit `max_active`
-- KEYS ledger         hash  run id -> run as JSON
-- KEYS catchup_active zset  catch-up and backfill runs that are queued or running, if there is a limit
-- ARGV owner, epoch
-- ARGV ...                  run ids
-- RETURNS how many of them count, or false if another beat leads
if not leads() then return false end
local count, now = 0, server_now('0')
for i = first_arg, #ARGV do
  local run = load_run(ARGV[i])
  local active = run and (run.state == 'running' or (run.state == 'queued' and not run.unreported))
  if limit() and active and takes_place(run) then
    redis.call('ZADD', keys.catchup_active, 'NX', now, ARGV[i])
    count = count + 1
  else
    redis.call('ZREM', keys.catchup_active, ARGV[i])
  end
end
return count
