-- Forget an entry that has not been declared for as long as the ledger keeps its runs.
--
-- KEYS leader        hash  owner, epoch
-- KEYS removed       hash  entry -> since when it is not declared (ms, server's clock)
-- KEYS first_seen, anchors, fingerprints, policies, changed, decided, paused, manual, last_runs, stopped, left_off, deadlines, last_success
-- KEYS revisions     zset  stored entries by revision; negative for deleted ones
-- KEYS own           zset  the entry's runs by slot (ms)
-- KEYS catchups      hash  entry -> its latest catch-ups as JSON
-- KEYS active        zset  the entry's active runs
-- KEYS chain         zset  the entry's waiting runs
-- KEYS skips         zset  the entry's slots that were skipped
-- KEYS entry_hours   hash  hourly counts of the entry
-- ARGV owner, epoch
-- ARGV entry
-- ARGV removed_before      keep an entry that was removed later (ms, server's clock)
-- RETURNS 1, 0 if it is kept because it is back or has runs, or false if another beat leads
if not leads() then return false end
local since = tonumber(redis.call('HGET', keys.removed, args.entry) or 'inf') or 0
if since >= tonumber(args.removed_before) or redis.call('EXISTS', keys.own, keys.active, keys.chain) > 0 then return 0 end
for _, key in ipairs({
  keys.removed, keys.first_seen, keys.anchors, keys.fingerprints, keys.policies, keys.changed, keys.decided, keys.paused,
  keys.manual, keys.last_runs, keys.stopped, keys.left_off, keys.deadlines, keys.last_success, keys.catchups,
}) do
  redis.call('HDEL', key, args.entry)
end
redis.call('DEL', keys.skips, keys.entry_hours)
if tonumber(redis.call('ZSCORE', keys.revisions, args.entry) or '0') < 0 then redis.call('ZREM', keys.revisions, args.entry) end
return 1
