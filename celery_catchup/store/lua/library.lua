-- Functions that the scripts share. Each script is the tables `keys` and `args`, with the names of its
-- header, then this library, then its own file. Functions that work on one lane take `keys.active`, `keys.chain`
-- and `keys.lane` for it.

-- Check permissions first: a script that is refused half-way keeps the writes before. One key stands for all of
-- them. Servers before 7.0 have no such check.
if redis.acl_check_cmd and KEYS[1] then
  local key, missing = KEYS[1], ''
  for _, command in ipairs({
    { 'DEL', key }, { 'GET', key }, { 'INCR', key }, { 'TIME' }, { 'TYPE', key },
    { 'EXISTS', key }, { 'HDEL', key, '' }, { 'HEXISTS', key, '' }, { 'HGET', key, '' },
    { 'HGETALL', key }, { 'HMGET', key, '' }, { 'HSCAN', key, '0' },
    { 'HINCRBY', key, '', '0' }, { 'HSET', key, '', '' }, { 'HSETNX', key, '', '' },
    { 'ZADD', key, '0', '' }, { 'ZCARD', key }, { 'ZCOUNT', key, '0', '0' }, { 'ZRANGE', key, '0', '0' },
    { 'ZRANGEBYSCORE', key, '0', '0' }, { 'ZREM', key, '' }, { 'ZREMRANGEBYSCORE', key, '0', '0' },
    { 'ZSCORE', key, '' },
  }) do
    if not redis.acl_check_cmd(unpack(command)) then missing = missing .. ' +' .. string.lower(command[1]) end
  end
  if missing ~= '' then
    return redis.error_reply('NOPERM rights are missing: ~' .. string.match(key, '^{.-}') .. ':*' .. missing)
  end
end

-- Whether the caller still leads. Compares epoch and owner, because after a fail-over that lost writes two beats
-- can hold the same epoch.
local function leads()
  local record = redis.call('HMGET', keys.leader, 'owner', 'epoch')
  return record[1] == args.owner and record[2] == args.epoch
end

-- The server's clock (ms), unless a test passes a time.
local function server_now(now_ms)
  if tonumber(now_ms) > 0 then return tonumber(now_ms) end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- A text that no other renewal of a lease has: after lost writes, numbers come again. Nothing is computed with it.
local function this_moment()
  return table.concat(redis.call('TIME'), '.')
end

-- Format epoch milliseconds as 2026-02-07T10:00:00Z (days to civil date after Howard Hinnant).
local function rfc3339(ms)
  local days = math.floor(ms / 86400000)
  local rest = ms - days * 86400000
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  local seconds = math.floor(rest / 1000)
  local text = string.format('%04d-%02d-%02dT%02d:%02d:%02d', year, month, doy - math.floor((153 * mp + 2) / 5) + 1,
    math.floor(seconds / 3600), math.floor(seconds / 60) % 60, seconds % 60)
  local millis = rest % 1000
  return text .. (millis > 0 and string.format('.%03dZ', millis) or 'Z')
end

-- Decode stored JSON; empty if it is missing or unreadable.
local function read_json(stored)
  local fine, value = pcall(cjson.decode, stored or '{}')
  return fine and type(value) == 'table' and value or {}
end

local known_states = {
  waiting = true, queued = true, running = true, succeeded = true, failed = true, revoked = true, dead = true,
}

-- Return the pauses of an entry whose resume no beat has seen yet, each with both of its ends, from its record.
local function unseen_pauses(before)
  local earlier = before.earlier
  if before.at then
    earlier = earlier or {}
    table.insert(earlier, { at = before.at, resumed = before.resumed or before.at, discard = before.discard or false,
      held = before.held })
  end
  return earlier
end

-- Decode a run of the ledger; nil if it is missing or unreadable: scripts leave such a run alone, and the leader
-- buries it.
local function read_run(stored)
  if not stored then return nil end
  local fine, run = pcall(cjson.decode, stored)
  if not fine or type(run) ~= 'table' or not known_states[run.state] or type(run.entry) ~= 'string' then return nil end
  if type(run.slot) ~= 'number' or type(run.attempt) ~= 'number' or type(run.sends) ~= 'number' then return nil end
  return run
end

-- Read a run of the ledger; nil if it is missing or unreadable. The stored text comes with it.
local function load_run(id)
  local stored = redis.call('HGET', keys.ledger, id)
  return read_run(stored), stored
end

local function store_run(id, run)
  local encoded = cjson.encode(run)
  redis.call('HSET', keys.ledger, id, encoded)
  return encoded
end

-- Whether a run has not ended.
local function is_open(run)
  return run.state == 'queued' or run.state == 'running' or run.state == 'waiting'
end

-- The place of a run in its chain; the fraction keeps slots of the same instant in the order of declaration.
local function place_of(run)
  return run.slot + run.schedule / 1000
end

-- The first attempt's task has the run's own id; later ones get new ids, because a revoked id stays revoked.
local function task_id(id, attempt)
  return attempt > 1 and id .. '-' .. string.format('%d', attempt) or id
end

-- Whether a task's id belongs to the run.
local function is_message_of(id, task)
  return task == id or (string.sub(task, 1, #id + 1) == id .. '-' and string.find(task, '^%d+$', #id + 2) ~= nil)
end

-- Return the version of the stored state if it is newer than the caller knows: its records must not change then.
local function newer_schema()
  local written = redis.call('HGET', keys.meta, 'schema')
  return tonumber(written or '0') ~= nil and tonumber(written or '0') > tonumber(args.schema) and written
end

-- The lane of a run: its entry, or its backfill.
local function lane_of(run)
  return run.lane or run.entry
end

-- The policy of a lane, for the scripts that release and end runs.
local function policy_of(lane)
  local policy = read_json(redis.call('HGET', keys.policies, lane))
  policy.capacity, policy.max_attempts = policy.capacity or 1, policy.max_attempts or 1
  policy.retry_delay_ms = policy.retry_delay_ms or 0
  return policy
end

-- Fill in the marks of a text: @catchup:name@ with one of `texts`, "@catchup!name@" with its quotes with one of
-- `raws`. Searching for marks as plain text takes less than half the time of a pattern.
local function fill(text, texts, raws)
  local parts, copied, at = {}, 1, 1
  for _ = 1, #text do
    local mark, found = string.find(text, '@catchup', at, true)
    if not mark then break end
    local kind, name, after = string.match(text, '^([:!])([a-z_]+)@()', found + 1)
    local value = kind == ':' and texts[name]
    if kind == '!' and string.sub(text, mark - 1, mark - 1) == '"' and string.sub(text, after, after) == '"' then
      value, mark, after = raws[name], mark - 1, after + 1
    end
    if value then
      parts[#parts + 1], parts[#parts + 2] = string.sub(text, copied, mark - 1), value
      copied = after
    end
    at = value and after or found + 1
  end
  parts[#parts + 1] = string.sub(text, copied)
  return table.concat(parts)
end

-- Escape a text for a string of JSON.
local function inside_json(text)
  return (string.gsub(string.sub(cjson.encode(text), 2, -2), '\\/', '/'))
end

-- Build the message of one sending of a run from its template.
local function render(template, id, run, now)
  local slot = rfc3339(run.slot)
  local inputs = template.inputs or {}
  local texts = {
    task = inputs.task, argsrepr = inputs.argsrepr, kwargsrepr = inputs.kwargsrepr, body = inputs.body,
    task_id = task_id(id, run.attempt),
    delivery_tag = id .. ':' .. string.format('%d', run.sends),
    run_id = id,
    entry = run.entry and inside_json(run.entry) or '',
    trigger_type = run.trigger,
    scheduled_time = slot,
    interval_start = run.previous and rfc3339(run.previous) or '',
    interval_end = slot,
    expires = template.expires_ms and rfc3339(now + template.expires_ms) or '',
    eta = template.countdown_ms and rfc3339(now + template.countdown_ms) or '',
  }
  local raws = {
    is_catchup = (run.trigger == 'catchup') and 'true' or 'false',
    slots = string.format('%d', run.slots or 1),
  }
  return fill(template.message, texts, raws)
end

-- Send many arguments in few commands: one has room for about eight thousand.
local MANY = 1000
local function write(command, key, arguments)
  for first = 1, #arguments, MANY do
    redis.call(command, key, unpack(arguments, first, math.min(first + MANY - 1, #arguments)))
  end
end

local function fields_of(key, names)
  local found = {}
  for first = 1, #names, MANY do
    local some = redis.call('HMGET', key, unpack(names, first, math.min(first + MANY - 1, #names)))
    for i = 1, #some do found[first + i - 1] = some[i] end
  end
  return found
end

-- The run that a template was made for, by the template's id; nil if runs share the template.
local function run_of_template(id)
  return string.match(id, '^(.-):')
end

-- Read a template with its base; empty if one of them is missing or unreadable. The bytes that were read come with it.
local function load_template(id)
  local text = redis.call('HGET', keys.templates, id) or ''
  local template, size = read_json(text), #text
  if template.base then
    text = redis.call('HGET', keys.templates, template.base) or ''
    local inputs = template.inputs
    template, size = read_json(text), size + #text
    template.inputs = inputs
  end
  return template, size
end

-- Store shared templates, and mark them as used. Templates of single runs come back by run: they are stored with
-- their run, or not at all.
local function store_templates(ids, texts)
  local own, shared, used, now = {}, {}, {}, server_now('0')
  for i, id in ipairs(ids) do
    local run = run_of_template(id)
    if run then
      own[run] = { id, texts[i] }
    else
      shared[#shared + 1], shared[#shared + 2] = id, texts[i]
      used[#used + 1], used[#used + 2] = now, id
    end
  end
  write('HSET', keys.templates, shared)
  write('ZADD', keys.template_uses, used)
  return own
end

-- Store the template of a single run, one of those that `store_templates` returned.
local function store_own_template(own)
  if own then redis.call('HSETNX', keys.templates, own[1], own[2]) end
end

-- Push messages to a queue of this server, in its database.
local function push(queue, db, messages)
  local own_db = tonumber(args.db)
  if db ~= own_db then redis.call('SELECT', db) end
  write('LPUSH', queue, messages)
  if db ~= own_db then redis.call('SELECT', own_db) end
end

-- How long after a message was sent the leader first looks for evidence that it was lost: five minutes, and twice
-- as long after each copy. A message that merely waits is never sent again.
local function patience(sends)
  return 300000 * 2 ^ math.min(sends - 1, 8)
end

-- Record that the store is reachable. A gap of more than half a run's lease begins a new period: workers could not
-- renew during the gap, so their runs are left alone for one lease length (see may_take_over).
local function note_contact(now, ttl)
  local contact = redis.call('HMGET', keys.contact, 'at', 'since')
  local at, since = tonumber(contact[1] or ''), tonumber(contact[2] or '')
  if not at or not since or math.abs(now - at) > ttl / 2 then since = now end
  redis.call('HSET', keys.contact, 'at', string.format('%.0f', now), 'since', string.format('%.0f', since))
end

-- Whether workers have had one lease length to renew since the store was last unreachable.
local function may_take_over(now, ttl)
  local since = tonumber(redis.call('HGET', keys.contact, 'since') or '')
  return not since or now - since >= ttl
end

-- The counts of the hour of `now`, and their place. Eight days are kept, in a ring: a new hour overwrites an old one.
local function page_of(key, now)
  local hour = math.floor(now / 3600000)
  local place = hour % 192
  local stored = redis.call('HGET', key, place)
  local page = stored and read_json(stored)
  if not page or page.hour ~= hour then page = { hour = hour } end
  return page, place
end

-- Add to the counts of the hour of `now`.
local function tally(key, now, counts)
  local page, place = page_of(key, now)
  for name, count in pairs(counts) do page[name] = (tonumber(page[name]) or 0) + count end
  redis.call('HSET', key, place, cjson.encode(page))
end

-- Keep the largest lag of the hour; most lags are not the largest, and write nothing.
local function tally_lag(key, now, lag)
  local page, place = page_of(key, now)
  if lag <= (tonumber(page.lag) or -1) then return end
  page.lag = lag
  redis.call('HSET', key, place, cjson.encode(page))
end

-- Add to the counts since the beginning, which metrics use because they only grow.
local function count_up(counts)
  for name, count in pairs(counts) do redis.call('HINCRBY', keys.hours, 'ever:' .. name, count) end
end

-- Add to all counts: of the hour and since the beginning, of all entries and of this one.
local function count_all(now, counts)
  tally(keys.hours, now, counts)
  count_up(counts)
  tally(keys.entry_hours, now, counts)
end

-- Count how late a run started (ms), in the bucket of a histogram; metrics know the same bounds.
local function count_lag(trigger, lag)
  local bucket = 'inf'
  for _, seconds in ipairs({ 1, 5, 15, 60, 300, 900, 3600, 14400, 86400, 604800 }) do
    if lag <= seconds * 1000 then
      bucket = seconds
      break
    end
  end
  count_up({ ['lag:' .. trigger .. ':' .. bucket] = 1, ['lag_ms:' .. trigger] = lag })
end

-- Add a run to the lists of all runs and of its entry's.
local function list_run(id, run)
  redis.call('ZADD', keys.runs, run.slot, id)
  redis.call('ZADD', keys.own, run.slot, id)
end

-- Forget an ended run, its notes and failure, and its template if that is not shared.
local function forget_run(id)
  local template = read_json(redis.call('HGET', keys.ledger, id)).template
  if type(template) == 'string' and run_of_template(template) == id then redis.call('HDEL', keys.templates, template) end
  for _, key in ipairs({ keys.ledger, keys.letters, keys.notes }) do redis.call('HDEL', key, id) end
  for _, key in ipairs({ keys.runs, keys.ended, keys.dead, keys.own }) do redis.call('ZREM', key, id) end
end

-- Record who changes what, in the audit trail: a new record, or the present state of the one that an earlier script of
-- the same operation has written. Call it before the first write. `args.change` is an id of 20 characters and the record
-- as JSON, or "" for a change by beat or a worker itself. The oldest records make room for new ones.
local MOST_CHANGES = 10000
local function record_change()
  if args.change == '' then return end
  local id = string.sub(args.change, 1, 20)
  if redis.call('HEXISTS', keys.audit, id) == 0 then
    redis.call('ZADD', keys.audit_times, server_now('0'), id)
    local beyond = redis.call('ZCARD', keys.audit_times) - MOST_CHANGES
    local oldest = beyond > 0 and redis.call('ZRANGE', keys.audit_times, 0, math.min(beyond, MANY) - 1) or {}
    write('ZREM', keys.audit_times, oldest)
    write('HDEL', keys.audit, oldest)
  end
  redis.call('HSET', keys.audit, id, string.sub(args.change, 21))
end

-- Record a new manual run. Unless `keep` is "1", slots that are still to be caught up count as done by it.
local function record_manual(id, run, now, keep)
  store_run(id, run)
  list_run(id, run)
  local manual = read_json(redis.call('HGET', keys.manual, run.entry))
  if keep ~= '1' and now >= (manual.start or 0) then
    manual.start, manual.run = now, id
    redis.call('HSET', keys.manual, run.entry, cjson.encode(manual))
  end
  redis.call('INCR', keys.version)
  count_all(now, { manual = 1 })
end

-- Record an attempt that has ended while its run goes on; the last twenty are kept. The run itself holds the
-- current or last attempt.
local function remember(run, outcome, ended, error)
  local past = run.past or {}
  past[#past + 1] = {
    attempt = run.attempt, started = run.attempt_started, ended = ended, worker = run.worker,
    outcome = outcome, error = error, task_id = run.task_id,
  }
  if #past > 20 then table.remove(past, 1) end
  run.past, run.attempt_started = past, nil
end

-- When the leader looks whether a message was lost. It counts from when the message may start; an expiring message
-- is looked at half a minute after its expiry, because clocks differ.
local function look_at(sent, sends, expires)
  local look = sent + patience(math.max(sends, 1))
  return expires and math.min(look, expires + 30000) or look
end

-- Record that a run's message is with the broker since `sent` (server's clock). `run.sent` is when it may start.
local function record_sent(id, run, sent, countdown, expires)
  run.sent, run.countdown = sent + (countdown or 0), countdown
  run.expires = expires and sent + expires or nil
  store_run(id, run)
  if run.state == 'queued' then redis.call('ZADD', keys.leases, look_at(run.sent, run.sends, run.expires), id) end
end

-- The runs that this script has sent: pushed to an atomic broker, or put into the outbox. A worker's script sets
-- `by_worker`: the worker publishes these runs itself, and the leader does it if the worker dies; so `unpublished` has
-- three texts for each: its id, the run and its template as JSON. `at` is the server's clock, if the script has read it.
local sending = { pushed = {}, unpublished = {}, by_worker = nil, at = nil }

-- Whether a run takes a place, if there is a limit (`catchup_max_active`) for the catch-up and backfill runs of all
-- entries that are queued or running. A run takes its place when it is sent, and gives it back when it ends or waits
-- for its next attempt. Live and manual runs neither count nor wait. Without a limit nothing is counted.
local function takes_place(run)
  return run.trigger == 'catchup' or run.trigger == 'backfill'
end

-- The limit; false without one.
local most_counted
local function limit()
  if most_counted == nil then most_counted = tonumber(redis.call('HGET', keys.meta, 'max_active') or '') or false end
  return most_counted
end

-- How many places are free, which may be fewer than none after the limit was lowered.
local function free_places()
  return limit() and limit() - redis.call('ZCARD', keys.catchup_active) or math.huge
end

-- Whether a run of this lane that counts may start: a place is free, and no other lane waits for it longer.
local function has_place()
  if free_places() <= 0 then return false end
  local first = limit() and redis.call('ZRANGE', keys.catchup_waiting, 0, 0)[1]
  return not first or first == keys.lane
end

-- Count a run of this lane that has a place. Its lane goes to the end of the queue for the next one.
local function take_place(id, now)
  if not limit() then return end
  redis.call('ZADD', keys.catchup_active, now, id)
  redis.call('ZREM', keys.catchup_waiting, keys.lane)
end

-- Let the lane wait for a place, after the others.
local function wait_for_place()
  local last = redis.call('ZRANGE', keys.catchup_waiting, -1, -1, 'WITHSCORES')
  redis.call('ZADD', keys.catchup_waiting, 'NX', tonumber(last[2] or '0') + 1, keys.lane)
end

-- The lanes that can have the free places, for the caller to release; the leader does it if the caller dies.
local function lanes_with_place()
  local free = limit() and math.min(free_places(), 10) or 0
  return free > 0 and redis.call('ZRANGE', keys.catchup_waiting, 0, free - 1) or {}
end

-- Send a run's message: push it on an atomic broker, else put it into the outbox. A run in the outbox has no lease:
-- a message that was not sent cannot be lost. `now` may be slot time.
local function dispatch(id, run, now)
  run.state, run.sends, run.queued, run.sent, run.expires = 'queued', run.sends + 1, now, nil, nil
  run.handed, run.discarded, run.took = sending.by_worker, nil, nil
  local template, size = load_template(run.template)
  if template.queue then
    record_sent(id, run, sending.at or server_now('0'), template.countdown_ms, template.expires_ms)
    push(template.queue, template.db, { render(template, id, run, now) })
    table.insert(sending.pushed, id)
  else
    local encoded = store_run(id, run)
    redis.call('ZREM', keys.leases, id)
    -- in order, even if many runs are decided in the same millisecond
    local last = redis.call('ZRANGE', keys.outbox, -1, -1, 'WITHSCORES')
    redis.call('ZADD', keys.outbox, math.max(now, tonumber(last[2] or '0') + 1), id)
    if sending.by_worker then
      for _, text in ipairs({ id, encoded, cjson.encode(template) }) do table.insert(sending.unpublished, text) end
    end
  end
  return size
end

-- Whether a run's failure has stopped its entry's chain (`on_failure: stop`), and the other runs that have.
local function stops(entry, id)
  local found, others = false, {}
  for other in string.gmatch(redis.call('HGET', keys.stopped, entry) or '', '%S+') do
    if other == id then found = true else others[#others + 1] = other end
  end
  return found, others
end

-- Stop the entry's chain if its policy says so.
local function stop(entry, id, policy)
  if policy.on_failure ~= 'stop' or policy.capacity < 0 then return end
  local _, others = stops(entry, id)
  others[#others + 1] = id
  redis.call('HSET', keys.stopped, entry, table.concat(others, ' '))
end

-- A chain goes on when each run that stopped it has succeeded or was discarded. Returns whether this run had.
local function go_on(entry, id)
  local found, others = stops(entry, id)
  if found and #others > 0 then redis.call('HSET', keys.stopped, entry, table.concat(others, ' ')) end
  if found and #others == 0 then redis.call('HDEL', keys.stopped, entry) end
  return found
end

-- Limits for the releases of one script, in runs and in bytes of their templates: the server answers no other client
-- meanwhile. All lanes of the script share them; the last run may exceed the bytes.
local budget = { runs = 100, bytes = 262144 }

-- Leave the rest of a lane to the leader's next ticks, after the lanes that others have left.
local function leave_to_leader()
  local last = redis.call('ZRANGE', keys.unreleased, -1, -1, 'WITHSCORES')
  redis.call('ZADD', keys.unreleased, tonumber(last[2] or '0') + 1, keys.lane)
end

-- Start a run of the lane, which takes a place if it counts.
local function start(id, run, at, now)
  if takes_place(run) then take_place(id, now) end
  redis.call('ZREM', keys.chain, id)
  redis.call('ZADD', keys.active, at, id)
  budget.bytes = budget.bytes - dispatch(id, run, now)
end

-- Start the newest waiting runs of a lane that do not count: where any number may be active, they do not wait for
-- older ones that find no place.
local function release_live(now)
  local ids = budget.runs > 0 and redis.call('ZRANGE', keys.chain, -budget.runs, -1, 'WITHSCORES') or {}
  local first = #ids + 1
  for i = #ids - 1, 1, -2 do
    local run = load_run(ids[i])
    if not run or run.delayed or takes_place(run) then break end
    first = i
  end
  for i = first, #ids, 2 do
    if budget.bytes <= 0 then return leave_to_leader() end
    budget.runs = budget.runs - 1
    start(ids[i], load_run(ids[i]), ids[i + 1], now)
  end
end

-- Start waiting runs of a lane, oldest first, while fewer than `capacity` are active (-1: any number) and the budget
-- lasts. Beyond the budget, runs stay in the chain, and the lane is left to the leader. A delayed run keeps its
-- place: runs after it wait, too; and so does one without a place among the active catch-up runs. Of a stopped chain
-- only runs that have stopped it start. Returns whether the lane waits for a place.
local function release(capacity, now)
  local stopped = keys.stopped and redis.call('HEXISTS', keys.stopped, keys.lane) == 1
  local room = capacity < 0 and math.huge or capacity - redis.call('ZCARD', keys.active)
  if room <= 0 then return false end
  local most = math.min(room, math.max(budget.runs, 0))
  local ids = most > 0 and redis.call('ZRANGE', keys.chain, 0, most - 1, 'WITHSCORES') or {}
  local crowded = false
  for i = 1, #ids, 2 do
    if budget.bytes <= 0 or (stopped and not stops(keys.lane, ids[i])) then break end
    budget.runs, room = budget.runs - 1, room - 1
    local run, stored = load_run(ids[i])
    local delayed = run and run.delayed
    if delayed and capacity >= 0 then break end
    crowded = run and not delayed and takes_place(run) and not has_place() or false
    if crowded then break end
    if run and not delayed then
      start(ids[i], run, ids[i + 1], now)
    elseif not run then
      redis.call('ZREM', keys.chain, ids[i])
      if stored then redis.call('ZADD', keys.leases, 0, ids[i]) end -- overdue, so that the leader looks at it
    end
  end
  if crowded then
    wait_for_place()
    if capacity < 0 then release_live(now) end
    return true
  end
  local used_up = budget.runs <= 0 or budget.bytes <= 0
  if used_up and room > 0 and redis.call('ZCARD', keys.chain) > 0 then leave_to_leader() end
  return false
end

-- Revoke the waiting runs of a cancelled lane, as far as the budget lasts.
local function revoke_waiting(now)
  local ids = budget.runs > 0 and redis.call('ZRANGE', keys.chain, 0, budget.runs - 1) or {}
  for _, id in ipairs(ids) do
    redis.call('ZREM', keys.chain, id)
    local run = load_run(id)
    if run then
      run.state, run.finished, run.error = 'revoked', now, 'its backfill was cancelled'
      store_run(id, run)
      redis.call('ZADD', keys.ended, now, id)
    end
  end
  budget.runs = budget.runs - #ids
  if redis.call('ZCARD', keys.chain) > 0 then leave_to_leader() end
end

-- The watermark of an entry that is paused at `at`: while no beat leads, the scheduler's watermark stays old, and the
-- slots since then were missed before the pause.
local function decided_until(at)
  return math.min(at, tonumber(redis.call('HGET', keys.scheduler, 'watermark') or '') or at)
end

-- Record the decision about a run that failed or was lost, with the policy: the time of the next attempt, or the
-- reason why there is none.
local function note_decision(run, policy, now, due, reason)
  run.decided = {
    at = now, failures = run.failures or 0, losses = run.losses or 0, next = due, reason = reason,
    max_attempts = policy.max_attempts, retry_delay_ms = policy.retry_delay_ms, retry_backoff = policy.retry_backoff,
    retry_max_delay_ms = policy.retry_max_delay_ms, on_failure = policy.on_failure,
  }
end

-- Return when a failed run is attempted again, nil if it is not. A permanent failure has no further attempt. Others
-- have `max_attempts`, `retry_delay` apart; `retry_backoff` multiplies each delay, up to `retry_max_delay`.
local function next_attempt(run, policy, category, now)
  local due, reason
  if category == 'permanent' then
    reason = 'permanent'
  elseif run.failures >= policy.max_attempts then
    reason = 'max_attempts'
  else
    local delay = policy.retry_delay_ms * (policy.retry_backoff or 1) ^ (run.failures - 1)
    due = now + math.floor(math.min(delay, policy.retry_max_delay_ms or delay))
  end
  note_decision(run, policy, now, due, reason)
  return due
end

-- Record the end of a run: it leaves chain, leases and active runs. A run without attempts left becomes a dead
-- letter, and pauses its entry or stops its chain if the policy says so. Returns the run as it is stored.
local function conclude(id, run, state, policy, now)
  if state == 'dead' then
    tally(keys.hours, now, { dead = 1 })
    if not run.decided or run.decided.at ~= now then note_decision(run, policy, now, nil, 'lost') end
  end
  count_up({ ['ended:' .. (state == 'queued' and 'unreported' or state)] = 1 })
  local lease = run.state == 'running' and tonumber(redis.call('ZSCORE', keys.leases, id) or '')
  run.heartbeat = lease and run.lease_ms and lease - run.lease_ms or nil
  run.state, run.finished, run.owner, run.delayed = state, now, nil, nil
  local encoded = store_run(id, run)
  for _, key in ipairs({ keys.leases, keys.active, keys.chain }) do redis.call('ZREM', key, id) end
  if takes_place(run) then redis.call('ZREM', keys.catchup_active, id) end
  redis.call('ZADD', keys.ended, now, id)
  if state == 'dead' then
    redis.call('ZADD', keys.dead, now, id)
    if policy.pause_on_failure and redis.call('HEXISTS', keys.paused, run.entry) == 0 then
      redis.call('HSET', keys.paused, run.entry, cjson.encode({
        paused = true, at = now, decided = decided_until(now), reason = 'a run is dead',
      }))
      redis.call('INCR', keys.version)
    end
  end
  -- A failure stops the chain until the run is replayed or discarded; a replaced run has not failed.
  if state == 'dead' or (state == 'revoked' and not run.replaced) then stop(run.entry, id, policy) end
  if state == 'succeeded' then go_on(run.entry, id) end
  return encoded
end
