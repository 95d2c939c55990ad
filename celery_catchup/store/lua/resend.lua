-- Send the message of a queued run again, or start the next attempt of a failed run now.
--
-- A copy of a message does no harm to workers with the plugin: the claim decides.
--
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS leases     zset  active runs by lease expiry (ms)
-- KEYS retries    zset  failed runs by next attempt (ms)
-- KEYS templates  hash  template id -> message and queue as JSON
-- KEYS outbox     zset  runs to publish
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- KEYS meta       hash the limit `max_active`
-- KEYS catchup_active zset catch-up and backfill runs that are queued or running, if there is a limit
-- KEYS catchup_waiting zset lanes that wait for a place among them
-- ARGV run_id, db
-- ARGV now_ms           0 for the server's clock
-- ARGV change           the record of this change, for the audit trail
-- RETURNS "sent", "unsent" if it is still to be published, "waiting" for its turn, "running", "ended", "unknown",
--         or "lost" if its message is not kept any more
local id, now = args.run_id, server_now(args.now_ms)
local run = load_run(id)
if not run then return 'unknown' end
if not is_open(run) then return 'ended' end
if run.state == 'running' then return 'running' end
if redis.call('ZSCORE', keys.outbox, id) then return 'unsent' end
if run.state == 'waiting' and not redis.call('ZSCORE', keys.retries, id) then return 'waiting' end
if redis.call('HEXISTS', keys.templates, run.template) == 0 then return 'lost' end
record_change()
keys.lane = lane_of(run)
if run.state == 'waiting' and takes_place(run) then
  if not has_place() then -- the leader lets it wait in its chain
    redis.call('ZADD', keys.retries, now, id)
    return 'waiting'
  end
  take_place(id, now)
end
redis.call('ZREM', keys.retries, id)
sending.at = now
dispatch(id, run, now)
return 'sent'
