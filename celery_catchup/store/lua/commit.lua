-- Make decisions durable: new runs, skips and watermarks of several entries, all or nothing.
--
-- Runs join their entry's chain and are released from it as far as the policy allows; on an
-- atomic broker their messages are pushed in this very step. A run that is in the ledger
-- already is left alone, so that repeating a commit changes nothing.
--
-- KEYS leader     hash    owner, epoch
-- KEYS scheduler  hash    progress of the catch-up
-- KEYS decided    hash    entry -> everything up to here is decided (ms)
-- KEYS last_runs  hash    entry without a policy -> when it last ran (ms) and how often
-- KEYS anchors    hash    entry -> last slot, for schedules that can only be asked for the next one
-- KEYS paused     hash    entry -> since when it is paused; gone when the resume is decided
-- KEYS ledger     hash    run id -> run as JSON
-- KEYS runs       zset    run id by slot (ms), all entries
-- KEYS templates  hash    template id -> message and queue as JSON
-- KEYS outbox     zset    runs to be published, by the time they were decided
-- KEYS delayed    zset    runs that are sent later, by the time they may go
-- KEYS leases     zset    runs by the time in which they have to be claimed or renewed (ms)
-- KEYS hours      hash    what happened in each hour
-- KEYS ...                five per entry: its runs, active, chain (zsets by slot), skips (zset by last slot), hours
-- ARGV owner, epoch, db   the leader's fence, and the number of the database we are in
-- ARGV now_ms             slot time of the tick that decided
-- ARGV batch              JSON: {templates, entries, plain, progress}
-- RETURNS {"ok", JSON of the entries' existing and released run ids}, {"fenced"}, or {"stale", entry}
local own_db, now, batch = tonumber(ARGV[3]), tonumber(ARGV[4]), cjson.decode(ARGV[5])
local leader, scheduler, decided, last_runs, anchors = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local paused, ledger, runs, templates, outbox, delayed = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local leases, hours = KEYS[12], KEYS[13]

-- check everything, then write
if not leads(leader, ARGV[1], ARGV[2]) then return { 'fenced' } end
for _, entry in ipairs(batch.entries) do
  if (redis.call('HGET', decided, entry.name) or '') ~= entry.expected then return { 'stale', entry.name } end
end
for _, entry in ipairs(batch.plain) do
  if (redis.call('HGET', last_runs, entry.name) or '') ~= entry.expected then return { 'stale', entry.name } end
end

for id, template in pairs(batch.templates) do redis.call('HSETNX', templates, id, template) end

local function record_skip(key, skip)
  local last = redis.call('ZRANGE', key, -1, -1)[1]
  if last and skip.previous then
    local before = read_json(last)
    if before.reason == skip.reason and before.schedule == skip.schedule and before.last == skip.previous then
      redis.call('ZREM', key, last)
      skip.first, skip.count = before.first, before.count + skip.count
    end
  end
  skip.previous = nil
  redis.call('ZADD', key, skip.last, cjson.encode(skip))
end

local outcome, total = {}, {}
for index, entry in ipairs(batch.entries) do
  local base = 13 + (index - 1) * 5
  local keys = {
    ledger = ledger, templates = templates, outbox = outbox, leases = leases,
    active = KEYS[base + 2], chain = KEYS[base + 3],
  }
  local existing, counts = {}, { missed = entry.missed }
  for _, item in ipairs(entry.runs) do
    local run = item.run
    if redis.call('HEXISTS', ledger, item.id) == 1 then
      existing[#existing + 1] = item.id
    else
      counts[run.trigger] = (counts[run.trigger] or 0) + 1
      run.state, run.attempt, run.sends, run.created = 'waiting', 1, 0, now
      redis.call('HSET', ledger, item.id, cjson.encode(run))
      redis.call('ZADD', runs, run.slot, item.id)
      redis.call('ZADD', KEYS[base + 1], run.slot, item.id)
      if item.send_at > now then
        redis.call('ZADD', delayed, item.send_at, item.id)
      else
        -- the fraction keeps slots of the same instant in the order of declaration
        redis.call('ZADD', keys.chain, run.slot + run.schedule / 1000, item.id)
      end
    end
  end
  for _, skip in ipairs(entry.skips) do
    local name = 'skipped:' .. skip.reason
    counts[name] = (counts[name] or 0) + skip.count
    record_skip(KEYS[base + 4], skip)
  end
  if next(counts) then tally(KEYS[base + 5], now, counts) end
  for name, count in pairs(counts) do total[name] = (total[name] or 0) + count end
  redis.call('HSET', decided, entry.name, entry.decided)
  if entry.resumes then redis.call('HDEL', paused, entry.name) end
  if entry.anchor then redis.call('HSET', anchors, entry.name, entry.anchor) end
  outcome[index] = { existing = existing, released = release(keys, entry.capacity, own_db, now) }
end

if next(total) then
  tally(hours, now, total)
  count_up(hours, total)
end

for _, entry in ipairs(batch.plain) do
  for _, message in ipairs(entry.messages) do push(entry.queue, entry.db, own_db, { message }) end
  redis.call('HSET', last_runs, entry.name, entry.value)
end
for field, value in pairs(batch.progress) do redis.call('HSET', scheduler, field, value) end
return { 'ok', cjson.encode(outcome) }
