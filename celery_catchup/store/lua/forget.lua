-- Forget an entry that has not been declared for as long as the ledger keeps its runs.
--
-- KEYS leader        hash  owner, epoch
-- KEYS removed       hash  entry -> since when it is not declared any more (ms, server's clock)
-- KEYS first_seen, anchors, fingerprints, policies, changed, decided, paused, manual, last_runs, stopped, left_off
-- KEYS own           zset  the entry's runs by slot (ms)
-- KEYS active        zset  the entry's active runs
-- KEYS chain         zset  the entry's waiting runs
-- KEYS skips         zset  the entry's slots that were skipped
-- KEYS entry_hours   hash  what happened to the entry in each hour
-- ARGV owner, epoch
-- ARGV entry
-- ARGV removed_before      it is kept when it was removed later than this (ms, server's clock)
-- RETURNS 1, 0 when it is kept because it is back or has runs, or false when somebody else leads
if not leads(KEYS[1], ARGV[1], ARGV[2]) then return false end
local since = tonumber(redis.call('HGET', KEYS[2], ARGV[3]) or 'inf') or 0
if since >= tonumber(ARGV[4]) or redis.call('EXISTS', KEYS[14], KEYS[15], KEYS[16]) > 0 then return 0 end
for _, key in ipairs({
  KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12],
  KEYS[13],
}) do
  redis.call('HDEL', key, ARGV[3])
end
redis.call('DEL', KEYS[17], KEYS[18])
return 1
