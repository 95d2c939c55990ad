-- Commit decisions: new runs, skips and watermarks of several entries, in one step.
--
-- Runs join their entry's chain and are released from it as far as the policy allows; on an atomic broker their
-- messages are pushed in the same step. A run that may start at once comes with its message, or goes to the outbox,
-- and skips the chain.
-- A run that is in the ledger already is left alone, so that repeating a commit changes nothing. If new runs
-- replace the active ones, or the schedule stops them, those end first: a queued run at once, a running one when
-- the leader has revoked its task, which it finds among the revocations.
--
-- Nothing is written if another beat leads, if another beat has decided an entry, or if a template is missing. If
-- an assumption of a plan is wrong (the entry's active and waiting runs, or no run in the ledger), the script skips
-- the entry and reports it; it also skips and reports an entry with a key of the wrong type.
--
-- KEYS leader     hash    owner, epoch
-- KEYS scheduler  hash    progress of the catch-up
-- KEYS decided    hash    entry -> its watermark (ms)
-- KEYS last_runs  hash    entry without a policy -> last run (ms) and count
-- KEYS anchors    hash    entry -> last slot, for forward-only schedules
-- KEYS paused     hash    entry -> pause; removed when the resume is decided
-- KEYS ledger     hash    run id -> run as JSON
-- KEYS runs       zset    runs of all entries by slot (ms)
-- KEYS templates  hash    template id -> message and queue, or base and inputs, as JSON
-- KEYS outbox     zset    runs to publish, by time of decision
-- KEYS delayed    zset    runs to send later, by time (ms)
-- KEYS leases     zset    active runs by lease expiry (ms)
-- KEYS hours      hash    hourly counts
-- KEYS ended      zset    ended runs by end (ms)
-- KEYS retries    zset    failed runs by next attempt (ms)
-- KEYS stopped    hash    entry -> runs whose failure stopped its chain, separated by blanks
-- KEYS revocations hash   task id -> "terminate" or "revoke", for the leader to send
-- KEYS unreleased zset    lanes whose release stopped at its budget; the leader continues them
-- KEYS meta       hash the limit `max_active`
-- KEYS catchup_active zset catch-up and backfill runs that are queued or running, if there is a limit
-- KEYS catchup_waiting zset lanes that wait for a place among them
-- KEYS template_uses zset   shared templates by last use (ms)
-- KEYS catchups   hash    entry -> its latest catch-ups as JSON, each a list: see record_catchup
-- KEYS ...                five per entry: its runs, active, chain (zsets by slot), skips (zset by last slot), hours
-- ARGV owner, epoch, db   the fence of the leader, and the number of this database
-- ARGV now_ms             slot time of the tick
-- ARGV batch              JSON: {templates, stored, routes, entries, runs, more, unmanaged, progress}; entries and
--                         runs are columns: one list for each field, all of the same length; `entries.more` is the
--                         position of an entry's further decisions in `more`, 0 if it has none;
--                         countdown and expiry (ms) of a run are false if it has none
-- ARGV ...                for each run its record (JSON without the last brace), and its message or "";
--                         then the templates as JSON, in the order of their ids
-- RETURNS {"ok", JSON {changed: positions of entries to plan again, existing: run ids,
--                       damaged: positions of entries with such a key, and the key}},
--         {"stale", entry}, {"unknown", template}, or false if another beat leads
local now, batch = tonumber(args.now_ms), cjson.decode(args.batch)
local entries, new = batch.entries, batch.runs

-- check everything, then write
if not leads() then return false end
for i, known in ipairs(fields_of(keys.decided, entries.name)) do
  if (known or '') ~= entries.expected[i] then return { 'stale', entries.name[i] } end
end
for i, known in ipairs(fields_of(keys.last_runs, batch.unmanaged.name)) do
  if (known or '') ~= batch.unmanaged.expected[i] then return { 'stale', batch.unmanaged.name[i] } end
end
for _, id in ipairs(batch.stored) do
  if redis.call('HEXISTS', keys.templates, id) == 0 then return { 'unknown', id } end
end

local epoch = tonumber(args.epoch)
local texts, used, sent = {}, {}, server_now('0')
for i = 1, #batch.templates do texts[i] = ARGV[first_arg + 2 * #new.id + i - 1] end
local own_templates = store_templates(batch.templates, texts)
for _, id in ipairs(batch.stored) do used[#used + 1], used[#used + 2] = sent, id end
write('ZADD', keys.template_uses, used)

-- Record a span of skipped slots with the epoch of the leader, and how many runs of the entry had not ended. A span
-- that ends at the slot before is extended if everything else is the same.
local function record_skip(skip, busy)
  local key, run_id, first, count = keys.skips, skip.run_id or '', skip.first, skip.count
  local last = skip.previous and redis.call('ZRANGE', key, -1, -1)[1]
  if last then
    local before = read_json(last) -- a list; version 0.1 stored a mapping, which is not extended
    local same = before[5] == skip.reason and before[6] == run_id and before[7] == epoch and before[8] == busy
    if same and before[1] == skip.schedule and before[3] == skip.previous then
      redis.call('ZREM', key, last)
      first, count = before[2], before[4] + count
    end
  end
  redis.call('ZADD', key, skip.last, cjson.encode({ skip.schedule, first, skip.last, count, skip.reason, run_id, epoch, busy }))
end

-- collect writes to keys of all entries, and send many of them at a time
local rows, places, claims, later, outgoing, unpublished = {}, {}, {}, {}, {}, {}
local function flush()
  write('HSET', keys.ledger, rows)
  write('ZADD', keys.runs, places)
  write('ZADD', keys.leases, claims)
  write('ZADD', keys.delayed, later)
  if #unpublished > 0 then
    -- in order, even if many runs are decided in the same millisecond
    local last = redis.call('ZRANGE', keys.outbox, -1, -1, 'WITHSCORES')
    local first, posted = math.max(now, tonumber(last[2] or '0') + 1), {}
    for i, id in ipairs(unpublished) do posted[2 * i - 1], posted[2 * i] = first + i - 1, id end
    write('ZADD', keys.outbox, posted)
  end
  for route, messages in pairs(outgoing) do push(batch.routes[route][1], batch.routes[route][2], messages) end
  rows, places, claims, later, outgoing, unpublished = {}, {}, {}, {}, {}, {}
end

local OUTBOX = -1 -- the route of a run that may start at once, on a broker that is not this server
local lease = look_at(sent, 1)
local decision = string.format('"created":%d,"epoch":%d', now, epoch)
local posted = string.format(',"state":"queued","attempt":1,"sends":1,%s,"queued":%d', decision, now)
local queued = string.format('%s,"sent":%d', posted, sent)
local waiting = string.format(',"state":"waiting","attempt":1,"sends":0,%s', decision)
local held = waiting .. ',"delayed":true'
local changed, existing, damaged, watermarks, total = {}, {}, {}, {}, {}

-- How many members a key has; nil if it has another type.
local function members(command, key, ...)
  local count = redis.pcall(command, key, ...)
  return type(count) == 'number' and count or nil
end

-- The first of an entry's keys that cannot be written to: a script that fails half-way keeps its writes.
local function damage(active, chained, known, more)
  if not known then return keys.own end
  if not active then return keys.active end
  if not chained then return keys.chain end
  if more and not members('ZCARD', keys.skips) then return keys.skips end
  if not members('HEXISTS', keys.entry_hours, '') then return keys.entry_hours end
end

-- State and lease of a run that starts later than it is sent (a countdown), or expires.
local function timed(countdown, expires)
  local starts, ends = sent + (countdown or 0), expires and sent + expires or nil
  local state = string.format('%s,"sent":%d', posted, starts)
  if countdown then state = string.format('%s,"countdown":%d', state, countdown) end
  if ends then state = string.format('%s,"expires":%d', state, ends) end
  return state, look_at(starts, 1, ends)
end

-- End the entry's active runs, but not those from `first` to `last`, one of which may be a manual run. Each takes
-- 75 µs, and the server serves no other client meanwhile: of more than 200 the oldest are ended. Runs that wait for
-- a place among the active catch-up runs end with them where the new run replaces them (`waiting_too`).
local MOST_ENDED = 200
local function end_active(ends, first, last, waiting_too)
  local joining, kind = {}, ends.terminate and 'terminate' or 'revoke'
  for j = first, last do joining[new.id[j]] = true end
  local ids = redis.call('ZRANGE', keys.active, 0, MOST_ENDED - 1)
  if waiting_too then
    for _, id in ipairs(redis.call('ZRANGE', keys.chain, 0, MOST_ENDED - 1)) do ids[#ids + 1] = id end
  end
  for _, id in ipairs(ids) do
    local run = not joining[id] and load_run(id)
    if run then
      -- A worker that was cut off may still execute an earlier attempt.
      for attempt = math.max(1, run.attempt - 4), run.attempt do
        redis.call('HSET', keys.revocations, task_id(id, attempt), kind)
      end
      if run.task_id then redis.call('HSET', keys.revocations, run.task_id, kind) end
      run.replaced = true
      if run.state == 'running' then
        store_run(id, run)
      else
        run.error = ends.why
        conclude(id, run, 'revoked', {}, sent)
        redis.call('ZREM', keys.outbox, id)
        redis.call('ZREM', keys.retries, id)
      end
    end
  end
end

-- Add the runs from `first` to `last` to their entry, which has `active` started and `chained` waiting ones. Returns
-- the new numbers of both, and the counts by trigger.
local function join(first, last, capacity, active, chained, doubtful)
  local own, started, waits, counts = {}, {}, {}, {}
  for j = first, last do
    local id, slot, score, route, n = new.id[j], new.slot[j], new.score[j], new.route[j], #rows
    if doubtful and redis.call('HEXISTS', keys.ledger, id) == 1 then
      existing[#existing + 1] = id
    else
      local state, delayed, busy = waiting, new.send_at[j] > now, active + chained
      if delayed then
        state = held
        later[#later + 1] = new.send_at[j]
        later[#later + 1] = id
      end
      local counted = takes_place({ trigger = new.trigger[j] })
      -- Where any number may be active, a live run does not wait for older ones that find no place.
      local next_one = chained == 0 or (capacity < 0 and not counted and limit())
      local free = not delayed and route ~= 0 and next_one and (capacity < 0 or active < capacity)
      if free and (not counted or has_place()) then
        if counted then take_place(id, now) end
        state, active = queued, active + 1
        started[#started + 1] = score
        started[#started + 1] = id
        if route == OUTBOX then
          -- without a lease: a message that was not sent cannot be lost
          state, unpublished[#unpublished + 1] = posted, id
        else
          local countdown, expires, look = new.countdown[j], new.expires[j], lease
          if countdown or expires then state, look = timed(countdown, expires) end
          claims[#claims + 1] = look
          claims[#claims + 1] = id
          outgoing[route] = outgoing[route] or {}
          table.insert(outgoing[route], ARGV[first_arg + 2 * j - 1])
        end
      elseif not delayed or capacity >= 0 then
        chained = chained + 1
        waits[#waits + 1] = score
        waits[#waits + 1] = id
      end
      local last = busy > 0 and string.format(',"busy":%d}', busy) or '}'
      rows[n + 1], rows[n + 2] = id, ARGV[first_arg + 2 * j - 2] .. state .. last
      store_own_template(own_templates[id])
      n = #own
      own[n + 1], own[n + 2] = slot, id
      n = #places
      places[n + 1], places[n + 2] = slot, id
      counts[new.trigger[j]] = (counts[new.trigger[j]] or 0) + 1
    end
  end
  write('ZADD', keys.own, own)
  write('ZADD', keys.active, started)
  write('ZADD', keys.chain, waits)
  return active, chained, counts
end

-- Record a catch-up once, with its first part: [at, after, epoch, active, waiting, other facts of its plan]. The last
-- 50 of an entry are kept.
local MOST_CATCHUPS = 50
local caught_up = {}
local function record_catchup(name, catchup, stored, active, chained)
  local known = read_json(stored)
  local last = known[#known]
  if last and last[1] == catchup.at then return end
  known[#known + 1] = { catchup.at, catchup.after, epoch, active, chained, catchup.facts }
  if #known > MOST_CATCHUPS then table.remove(known, 1) end
  caught_up[#caught_up + 1] = name
  caught_up[#caught_up + 1] = cjson.encode(known)
end

local function settle(more, name, stored, counts, active, chained)
  if more.catchup then record_catchup(name, more.catchup, stored, active, chained) end
  for _, skip in ipairs(more.skips) do
    local reason = 'skipped:' .. skip.reason
    counts[reason] = (counts[reason] or 0) + skip.count
    record_skip(skip, active + chained)
  end
  counts.missed = more.missed
  -- The plan knows nothing of a pause that was written since.
  if more.resumes and redis.call('HGET', keys.paused, name) == more.resumes then redis.call('HDEL', keys.paused, name) end
  if more.anchor then redis.call('HSET', keys.anchors, name, more.anchor) end
end

-- Count for the entry; the first counts of an hour are written as they are.
local hour = math.floor(now / 3600000)
local function tally_entry(counts)
  if not next(counts) then return end
  counts.hour = hour
  local text = cjson.encode(counts)
  counts.hour = nil
  if redis.call('HSETNX', keys.entry_hours, hour % 192, text) == 0 then tally(keys.entry_hours, now, counts) end
end

local catchups = #batch.more > 0 and fields_of(keys.catchups, entries.name) or {}
local halted = redis.call('EXISTS', keys.stopped) == 1 and fields_of(keys.stopped, entries.name) or {}
local last = 0
for i, name in ipairs(entries.name) do
  local base, capacity, busy, after = first_key + (i - 1) * 5, entries.capacity[i], entries.busy[i], entries.after[i]
  local more = batch.more[entries.more[i]]
  keys.lane, keys.own, keys.active, keys.chain = name, KEYS[base], KEYS[base + 1], KEYS[base + 2]
  keys.skips, keys.entry_hours = KEYS[base + 3], KEYS[base + 4]
  if halted[i] then capacity = 0 end -- new runs join the chain, and wait
  local first = last + 1
  last = last + entries.runs[i]
  local active, chained = 0, 0
  if redis.call('EXISTS', keys.active, keys.chain) > 0 then
    active, chained = members('ZCARD', keys.active), members('ZCARD', keys.chain)
  end
  local known = members('ZCOUNT', keys.own, after ~= '' and '(' .. after or '+inf', '+inf')
  local broken = damage(active, chained, known, more)
  local other = not broken and ((busy >= 0 and busy ~= active + chained) or known > 0)
  if broken then
    damaged[#damaged + 1] = { i - 1, broken }
  elseif other then
    changed[#changed + 1] = i - 1
  else
    local counts
    local active_before, chained_before = active, chained
    if more and more.ends then
      end_active(more.ends, first, last, capacity < 0 and chained > 0)
      active, chained = redis.call('ZCARD', keys.active), redis.call('ZCARD', keys.chain)
    end
    active, chained, counts = join(first, last, capacity, active, chained, after == '')
    if more then settle(more, name, catchups[i], counts, active_before, chained_before) end
    tally_entry(counts)
    for what, count in pairs(counts) do total[what] = (total[what] or 0) + count end
    watermarks[#watermarks + 1] = name
    watermarks[#watermarks + 1] = entries.decided[i]
    if chained > 0 and (capacity < 0 or active < capacity) then
      flush()
      release(capacity, now)
    end
  end
end
flush()
write('HSET', keys.decided, watermarks)
write('HSET', keys.catchups, caught_up)
if next(total) then
  tally(keys.hours, now, total)
  count_up(total)
end

local states = {}
for i, name in ipairs(batch.unmanaged.name) do
  for _, message in ipairs(batch.unmanaged.messages[i]) do
    local route = batch.unmanaged.route[i]
    outgoing[route] = outgoing[route] or {}
    table.insert(outgoing[route], message)
  end
  states[#states + 1] = name
  states[#states + 1] = batch.unmanaged.value[i]
end
flush()
write('HSET', keys.last_runs, states)
for field, value in pairs(batch.progress) do redis.call('HSET', keys.scheduler, field, value) end
return { 'ok', cjson.encode({ changed = changed, existing = existing, damaged = damaged }) }
