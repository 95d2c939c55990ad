-- Set how many catch-up and backfill runs of all entries may be queued or running at once.
--
-- The leader sets it when it takes over. From then on scripts count what they send; count_active.lua counts what was
-- sent before.
--
-- KEYS leader         hash  owner, epoch
-- KEYS meta           hash  the limit `max_active`
-- KEYS catchup_active zset  catch-up and backfill runs that are queued or running, if there is a limit
-- ARGV owner, epoch
-- ARGV max_active           the limit, or "" for none
-- RETURNS 1, or false if another beat leads
if not leads() then return false end
if args.max_active ~= '' then
  redis.call('HSET', keys.meta, 'max_active', args.max_active)
else
  redis.call('HDEL', keys.meta, 'max_active')
  redis.call('DEL', keys.catchup_active)
end
return 1
