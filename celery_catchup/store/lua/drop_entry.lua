-- Forget everything about an entry on request, except its runs; it starts as one that was never seen.
--
-- KEYS first_seen, anchors, fingerprints, policies, changed, decided, paused, manual, last_runs, stopped, left_off, deadlines, last_success
-- KEYS removed       hash  entry -> since when it is not declared (ms, server's clock)
-- KEYS accepted      hash  entry -> record of its accepted declaration
-- KEYS failing       hash  entry or lane -> failure as JSON
-- KEYS version       string  counter of changes from outside
-- KEYS catchups      hash  entry -> its latest catch-ups as JSON
-- KEYS active        zset  the entry's active runs
-- KEYS chain         zset  the entry's waiting runs
-- KEYS skips         zset  the entry's slots that were skipped
-- KEYS entry_hours   hash  hourly counts of the entry
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- ARGV entry
-- ARGV change           the record of this change, for the audit trail
-- RETURNS 1, or 0 if it has runs that have not ended
if redis.call('EXISTS', keys.active, keys.chain) > 0 then return 0 end
record_change()
for _, key in ipairs({
  keys.removed, keys.first_seen, keys.anchors, keys.fingerprints, keys.policies, keys.changed, keys.decided, keys.paused,
  keys.manual, keys.last_runs, keys.stopped, keys.left_off, keys.deadlines, keys.last_success, keys.catchups, keys.accepted,
  keys.failing,
}) do
  redis.call('HDEL', key, args.entry)
end
redis.call('DEL', keys.skips, keys.entry_hours)
redis.call('INCR', keys.version)
return 1
