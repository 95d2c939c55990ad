-- Take or renew the lead, or return who leads; in the same step the leader's tick is recorded.
--
-- A record that has not changed for its length by the observer's own clock belongs to a dead leader: the observer
-- passes it in `seen` and takes over. No time of the server's clock is compared with another, so that its jumps neither
-- steal a lease nor keep every beat from leading.
--
-- KEYS leader     hash    owner, epoch, beat (grows with each renewal), at (tells two renewals with one number apart), ttl_ms
-- KEYS meta       hash    schema and the last epoch, which outlives the leader's record
-- KEYS scheduler  hash    watermark, last_tick
-- KEYS version    string  counter of changes from outside
-- KEYS entries_version string  the latest revision of stored entries
-- KEYS outbox     zset    runs to publish
-- KEYS delayed    zset    runs to send later, by time (ms)
-- KEYS leases     zset    active runs by lease expiry (ms)
-- KEYS retries    zset    failed runs by next attempt (ms)
-- KEYS outages    zset    times without a leader, "since until" by end (ms)
-- KEYS epochs     zset    "epoch since owner" of each leader, by epoch
-- KEYS contact    hash    since when the store is reachable
-- KEYS unreleased zset    lanes whose release stopped at its budget
-- KEYS catchup_active zset catch-up and backfill runs that are queued or running, if there is a limit
-- KEYS catchup_waiting zset lanes that wait for a place among them
-- KEYS hours      hash    hourly counts, and counts since the beginning
-- ARGV owner              random per process
-- ARGV ttl_ms             how long the record is valid without a renewal
-- ARGV seen               "owner epoch beat at" of a record that stayed unchanged for its length, or ""; the numbers
--                         alone could be those of another beat, or of a later renewal, after the server has lost writes
-- ARGV known_epoch, known_beat   the latest record that the owner knows of, or zeros
-- ARGV watermark          the scheduler's new watermark, or ""; ignored if the record is older than the
--                         owner knows, because the server has then lost decisions
-- ARGV now_ms             slot time of this tick
-- ARGV run_ttl_ms         how long a run's lease lasts
-- RETURNS {leads, epoch, beat, owner, ttl_ms, version, server_ms, size of the outbox,
--          when the first delayed run may go (0 while a lane is unreleased, or can have a place that no worker passes on) or -1,
--          number of runs that are lost or to retry,
--          the latest revision of stored entries, the number of runs that ever died, at}
local leader, meta, scheduler, version = keys.leader, keys.meta, keys.scheduler, keys.version
local owner, ttl, seen, watermark, now = args.owner, args.ttl_ms, args.seen, args.watermark, args.now_ms
local known_epoch, known_beat = tonumber(args.known_epoch), tonumber(args.known_beat)

-- Whether a free place is left to the leader. The worker whose run has ended passes it on a moment later, so that one
-- is free in many ticks while a backlog drains; the leader takes over what stays free for a second.
local HANDOVER = 1000
local function is_left(server)
  local last = redis.call('ZRANGE', keys.catchup_active, -1, -1, 'WITHSCORES')
  return not last[1] or math.abs(server - tonumber(last[2])) > HANDOVER
end

local kind = redis.call('TYPE', leader).ok
local strange = kind ~= 'hash' and kind ~= 'none'
-- A key of another type counts as a leader that never renews: it is taken over like any other.
local record = strange and { 'unreadable', '0', '0' } or redis.call('HMGET', leader, 'owner', 'epoch', 'beat', 'ttl_ms', 'at')
local free = not record[1] or not record[2]
local term, beats = tonumber(record[2] or '0') or 0, tonumber(record[3] or '0') or 0
local changes = tonumber(redis.call('GET', version) or '0') or 0
local revision = tonumber(redis.call('GET', keys.entries_version) or '0') or 0
local server = server_now('0')
local died = tonumber(redis.call('HGET', keys.hours, 'ever:ended:dead') or '0') or 0
note_contact(server, tonumber(args.run_ttl_ms))
local outbox = redis.call('ZCARD', keys.outbox)
local first = redis.call('ZRANGE', keys.delayed, 0, 0, 'WITHSCORES')
local crowded = redis.call('ZCARD', keys.catchup_waiting) > 0 and free_places() > 0 and is_left(server)
local delayed = (crowded or redis.call('ZCARD', keys.unreleased) > 0) and 0 or tonumber(first[2] or '-1')
local overdue = redis.call('ZCOUNT', keys.leases, '-inf', server) + redis.call('ZCOUNT', keys.retries, '-inf', server)

if not free and record[1] ~= owner and string.format('%s %d %d %s', record[1], term, beats, record[5] or '') ~= seen then
  return { 0, term, beats, record[1], tonumber(record[4]) or 0, changes, server, outbox, delayed, overdue, revision, died, record[5] or '' }
end

local forgotten = record[1] ~= owner or term < known_epoch or (term == known_epoch and beats < known_beat)
local epoch, beat = term, beats + 1
if record[1] ~= owner then
  epoch = math.max(tonumber(redis.call('HGET', meta, 'epoch') or '0') or 0, term) + 1
  beat = 1
  redis.call('HSET', meta, 'epoch', epoch)
  -- Decisions are kept with their epoch; the last 1,000 are kept with their leader.
  redis.call('ZADD', keys.epochs, epoch, string.format('%d %s %s', epoch, now, owner))
  if redis.call('ZCARD', keys.epochs) > 1000 then redis.call('ZREM', keys.epochs, redis.call('ZRANGE', keys.epochs, 0, 0)[1]) end
end
if strange then redis.call('DEL', leader) end
local at = this_moment()
redis.call('HSET', leader, 'owner', owner, 'epoch', epoch, 'beat', beat, 'at', at, 'ttl_ms', ttl)
-- No beat ticked for longer than a take-over lasts: slots may have been missed. The last 200 outages are kept.
local before = tonumber(redis.call('HGET', scheduler, 'last_tick') or '') or tonumber(now)
if tonumber(now) - before > 2 * tonumber(ttl) then
  redis.call('ZADD', keys.outages, now, string.format('%d %s', before, now))
  if redis.call('ZCARD', keys.outages) > 200 then redis.call('ZREM', keys.outages, redis.call('ZRANGE', keys.outages, 0, 0)[1]) end
end
redis.call('HSET', scheduler, 'last_tick', now)
if watermark ~= '' and not forgotten and (tonumber(redis.call('HGET', scheduler, 'watermark') or '0') or 0) < tonumber(watermark) then
  redis.call('HSET', scheduler, 'watermark', watermark)
end
return { 1, epoch, beat, owner, tonumber(ttl), changes, server, outbox, delayed, overdue, revision, died, at }
