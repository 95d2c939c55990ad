-- Make decisions durable: new runs, skips and watermarks of several entries, in one step.
--
-- Runs join their entry's chain and are released from it as far as the policy allows; on an
-- atomic broker their messages are pushed in this very step. One that may start at once comes
-- with its message, and takes no detour over the chain. A run that is in the ledger already is
-- left alone, so that repeating a commit changes nothing. Where new runs replace the active ones, or the
-- schedule stops them, those end first: at once when no worker executes them, else by the leader, who
-- finds their tasks among the revocations, and revokes them when the commit is done.
--
-- Nothing is written when the writer leads no more, when an entry was decided by somebody else, or
-- when a template is missing. An entry that is busier than its plan took it to be, or that has runs the plan
-- did not know of, is left as it is and told, to be planned again; one with a key that is not what it should
-- be is left as it is and told, too. The others are committed.
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
-- KEYS ended      zset    runs by the time they ended (ms)
-- KEYS retries    zset    failed runs by the time of their next attempt (ms)
-- KEYS stopped    hash    entry -> runs whose failure has stopped its chain, parted by blanks
-- KEYS revocations hash   task id -> "terminate" or "revoke": what the leader still has to tell the workers
-- KEYS unreleased zset    lanes whose release stopped at its budget; the leader goes on with them
-- KEYS template_uses zset   templates that runs share, by the time they were last used (ms)
-- KEYS ...                five per entry: its runs, active, chain (zsets by slot), skips (zset by last slot), hours
-- ARGV owner, epoch, db   the leader's fence, and the number of the database we are in
-- ARGV now_ms             slot time of the tick that decided
-- ARGV batch              JSON: {templates, stored, routes, entries, runs, timing, more, plain, progress}; entries and
--                         runs are columns: lists of the same length, one for each thing that is said of them;
--                         timing has the countdown and expiry (ms) of runs that have one, by their number
-- ARGV ...                of each run what is recorded of it (JSON without its last brace), and its message or "";
--                         then the templates as JSON, in the order of their ids
-- RETURNS {"ok", JSON {changed: positions of entries to be planned again, existing: run ids,
--                       damaged: positions of entries with such a key, and the key}},
--         {"fenced"}, {"stale", entry}, or {"unknown", template}
local own_db, now, batch = tonumber(ARGV[3]), tonumber(ARGV[4]), cjson.decode(ARGV[5])
local leader, scheduler, decided, last_runs, anchors = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local paused, ledger, runs, templates, outbox, delayed = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local leases, hours, ended, retries, stopped = KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16]
local revocations, unreleased, uses = KEYS[17], KEYS[18], KEYS[19]
local entries, new = batch.entries, batch.runs

-- check everything, then write
if not leads(leader, ARGV[1], ARGV[2]) then return { 'fenced' } end
for i, known in ipairs(fields_of(decided, entries.name)) do
  if (known or '') ~= entries.expected[i] then return { 'stale', entries.name[i] } end
end
for i, known in ipairs(fields_of(last_runs, batch.plain.name)) do
  if (known or '') ~= batch.plain.expected[i] then return { 'stale', batch.plain.name[i] } end
end
for _, id in ipairs(batch.stored) do
  if redis.call('HEXISTS', templates, id) == 0 then return { 'unknown', id } end
end

local texts, used, sent = {}, {}, server_now('0')
for i = 1, #batch.templates do texts[i] = ARGV[5 + 2 * #new.id + i] end
local own_templates = store_templates(templates, uses, batch.templates, texts)
for _, id in ipairs(batch.stored) do used[#used + 1], used[#used + 2] = sent, id end
write('ZADD', uses, used)

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

-- what is written to keys of all entries is gathered, and written many at a time
local rows, places, claims, later, outgoing = {}, {}, {}, {}, {}
local function flush()
  write('HSET', ledger, rows)
  write('ZADD', runs, places)
  write('ZADD', leases, claims)
  write('ZADD', delayed, later)
  for route, messages in pairs(outgoing) do push(batch.routes[route][1], batch.routes[route][2], own_db, messages) end
  rows, places, claims, later, outgoing = {}, {}, {}, {}, {}
end

local lease = look_at(sent, 1)
local queued = string.format(',"state":"queued","attempt":1,"sends":1,"created":%d,"queued":%d,"sent":%d}', now, now, sent)
local waiting = string.format(',"state":"waiting","attempt":1,"sends":0,"created":%d}', now)
local held = string.format(',"state":"waiting","attempt":1,"sends":0,"created":%d,"delayed":true}', now)
local changed, existing, damaged, watermarks, total = {}, {}, {}, {}, {}

-- How many members a key has; nil for one that somebody has made something else of.
local function members(command, key, ...)
  local count = redis.pcall(command, key, ...)
  return type(count) == 'number' and count or nil
end

-- The first of an entry's keys that cannot be written to: a script that fails half-way keeps what it wrote.
local function damage(base, active, behind, known, skips)
  if not known then return KEYS[base + 1] end
  if not active then return KEYS[base + 2] end
  if not behind then return KEYS[base + 3] end
  if skips and not members('ZCARD', KEYS[base + 4]) then return KEYS[base + 4] end
  if not members('HEXISTS', KEYS[base + 5], '') then return KEYS[base + 5] end
end

-- State and lease of a run that starts later than it is sent (a countdown), or expires.
local function timed(timing)
  local run = {
    state = 'queued', attempt = 1, sends = 1, created = now, queued = now,
    sent = sent + (timing.countdown or 0), countdown = timing.countdown, expires = timing.expires and sent + timing.expires or nil,
  }
  return ',' .. string.sub(cjson.encode(run), 2), look_at(run.sent, 1, run.expires)
end

-- End the entry's active runs, but not those from `first` to `last`: one of them can have been started by hand.
-- It takes 75 µs for each, and nobody else is served meanwhile: of more than 200 the oldest are ended.
local MOST_ENDED = 200
local function end_active(keys, ends, first, last)
  local joining, kind = {}, ends.terminate and 'terminate' or 'revoke'
  for j = first, last do joining[new.id[j]] = true end
  for _, id in ipairs(redis.call('ZRANGE', keys.active, 0, MOST_ENDED - 1)) do
    local run = not joining[id] and read_run(redis.call('HGET', ledger, id))
    if run then
      -- An earlier attempt whose worker was cut off may still be executed.
      for attempt = math.max(1, run.attempt - 4), run.attempt do
        redis.call('HSET', revocations, task_id(id, attempt), kind)
      end
      if run.task_id then redis.call('HSET', revocations, run.task_id, kind) end
      run.replaced = true
      if run.state == 'running' then
        redis.call('HSET', ledger, id, cjson.encode(run))
      else
        run.error = ends.why
        conclude(keys, id, run, 'revoked', {}, sent)
        redis.call('ZREM', outbox, id)
        redis.call('ZREM', retries, id)
      end
    end
  end
end

-- The runs from `first` to `last` join their entry, which has `active` started and `behind` waiting ones;
-- how many of both there are then, and what was counted.
local function join(keys, first, last, capacity, active, behind, doubtful)
  local own, started, chained, counts = {}, {}, {}, {}
  for j = first, last do
    local id, slot, score, route, n = new.id[j], new.slot[j], new.score[j], new.route[j], #rows
    if doubtful and redis.call('HEXISTS', ledger, id) == 1 then
      existing[#existing + 1] = id
    else
      local state, delayed = waiting, new.send_at[j] > now
      if delayed then
        state = held
        later[#later + 1] = new.send_at[j]
        later[#later + 1] = id
      end
      if not delayed and route > 0 and behind == 0 and (capacity < 0 or active < capacity) then
        state, active = queued, active + 1
        started[#started + 1] = score
        started[#started + 1] = id
        local timing, look = batch.timing[tostring(j)], lease
        if timing then state, look = timed(timing) end
        claims[#claims + 1] = look
        claims[#claims + 1] = id
        outgoing[route] = outgoing[route] or {}
        table.insert(outgoing[route], ARGV[5 + 2 * j])
      elseif not delayed or capacity >= 0 then
        behind = behind + 1
        chained[#chained + 1] = score
        chained[#chained + 1] = id
      end
      rows[n + 1], rows[n + 2] = id, ARGV[4 + 2 * j] .. state
      if own_templates[id] then redis.call('HSETNX', templates, own_templates[id][1], own_templates[id][2]) end
      n = #own
      own[n + 1], own[n + 2] = slot, id
      n = #places
      places[n + 1], places[n + 2] = slot, id
      counts[new.trigger[j]] = (counts[new.trigger[j]] or 0) + 1
    end
  end
  write('ZADD', keys.own, own)
  write('ZADD', keys.active, started)
  write('ZADD', keys.chain, chained)
  return active, behind, counts
end

local function settle(i, name, skips_key, counts)
  local more = batch.more[tostring(i)]
  if not more then return end
  for _, skip in ipairs(more.skips) do
    local reason = 'skipped:' .. skip.reason
    counts[reason] = (counts[reason] or 0) + skip.count
    record_skip(skips_key, skip)
  end
  counts.missed = more.missed
  if more.resumes then redis.call('HDEL', paused, name) end
  if more.anchor then redis.call('HSET', anchors, name, more.anchor) end
end

-- The first that is counted in an hour is most often one run of the schedule's own.
local place, alone = math.floor(now / 3600000) % 192, cjson.encode({ hour = math.floor(now / 3600000), scheduler = 1 })
local function tally_first(key, counts)
  local what, count = next(counts)
  if not what then return end
  local lone = what == 'scheduler' and count == 1 and next(counts, what) == nil
  if not lone or redis.call('HSETNX', key, place, alone) == 0 then tally(key, now, counts) end
end

local halted = redis.call('EXISTS', stopped) == 1 and fields_of(stopped, entries.name) or {}
local last = 0
for i, name in ipairs(entries.name) do
  local base, capacity, busy, after = 19 + (i - 1) * 5, entries.capacity[i], entries.busy[i], entries.after[i]
  local keys = {
    ledger = ledger, templates = templates, outbox = outbox, leases = leases, ended = ended, hours = hours,
    stopped = stopped, lane = name, unreleased = unreleased,
    own = KEYS[base + 1], active = KEYS[base + 2], chain = KEYS[base + 3],
  }
  if halted[i] then capacity = 0 end -- new runs join the chain, and wait
  local first = last + 1
  last = last + entries.runs[i]
  local active, behind = 0, 0
  if redis.call('EXISTS', keys.active, keys.chain) > 0 then
    active, behind = members('ZCARD', keys.active), members('ZCARD', keys.chain)
  end
  local known = members('ZCOUNT', keys.own, after ~= '' and '(' .. after or '+inf', '+inf')
  local broken = damage(base, active, behind, known, batch.more[tostring(i)])
  local other = not broken and ((busy >= 0 and busy ~= active + behind) or known > 0)
  if broken then
    damaged[#damaged + 1] = { i - 1, broken }
  elseif other then
    changed[#changed + 1] = i - 1
  else
    local counts
    local ends = batch.more[tostring(i)] and batch.more[tostring(i)].ends
    if ends then
      end_active(keys, ends, first, last)
      active = redis.call('ZCARD', keys.active)
    end
    active, behind, counts = join(keys, first, last, capacity, active, behind, after == '')
    settle(i, name, KEYS[base + 4], counts)
    tally_first(KEYS[base + 5], counts)
    for what, count in pairs(counts) do total[what] = (total[what] or 0) + count end
    watermarks[#watermarks + 1] = name
    watermarks[#watermarks + 1] = entries.decided[i]
    if behind > 0 and (capacity < 0 or active < capacity) then
      flush()
      release(keys, capacity, own_db, now)
    end
  end
end
flush()
write('HSET', decided, watermarks)
if next(total) then
  tally(hours, now, total)
  count_up(hours, total)
end

local states = {}
for i, name in ipairs(batch.plain.name) do
  for _, message in ipairs(batch.plain.messages[i]) do
    local route = batch.plain.route[i]
    outgoing[route] = outgoing[route] or {}
    table.insert(outgoing[route], message)
  end
  states[#states + 1] = name
  states[#states + 1] = batch.plain.value[i]
end
flush()
write('HSET', last_runs, states)
for field, value in pairs(batch.progress) do redis.call('HSET', scheduler, field, value) end
return { 'ok', cjson.encode({ changed = changed, existing = existing, damaged = damaged }) }
