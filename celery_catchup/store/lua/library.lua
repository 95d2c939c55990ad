-- What the scripts share. It is put in front of each of them, and touches no key by itself.

-- Rights are looked at first: a script that is refused half-way keeps what it wrote before. One
-- of our keys stands for all of them; servers before 7.0 cannot tell.
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

-- Whether the writer still leads: number and name together, because after a fail-over that
-- forgot writes two beats can hold the same number.
local function leads(leader, owner, epoch)
  local record = redis.call('HMGET', leader, 'owner', 'epoch')
  return record[1] == owner and record[2] == epoch
end

local function server_now(now_ms)
  if tonumber(now_ms) > 0 then return tonumber(now_ms) end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- 2026-02-07T10:00:00Z of epoch milliseconds (days to civil date after Howard Hinnant).
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

-- What was stored as JSON; empty when it is not there or cannot be read.
local function read_json(stored)
  local fine, value = pcall(cjson.decode, stored or '{}')
  return fine and type(value) == 'table' and value or {}
end

local known_states = {
  waiting = true, queued = true, running = true, succeeded = true, failed = true, revoked = true, dead = true,
}

-- A run of the ledger; nil when it is not there, or cannot be what we have written: nothing is done
-- with it then, and the leader buries it.
local function read_run(stored)
  if not stored then return nil end
  local fine, run = pcall(cjson.decode, stored)
  if not fine or type(run) ~= 'table' or not known_states[run.state] or type(run.entry) ~= 'string' then return nil end
  if type(run.slot) ~= 'number' or type(run.attempt) ~= 'number' or type(run.sends) ~= 'number' then return nil end
  return run
end

-- The first attempt's task has the run's own id; later ones get new ids, because a revoked id stays revoked.
local function task_id(id, attempt)
  return attempt > 1 and id .. '-' .. string.format('%d', attempt) or id
end

-- Whether a task's id is one that `task_id` makes for the run.
local function is_message_of(id, task)
  return task == id or (string.sub(task, 1, #id + 1) == id .. '-' and string.find(task, '^%d+$', #id + 2) ~= nil)
end

-- The version of the stored state when it is newer than the caller knows: its records are not to be touched.
local function newer_schema(meta, known)
  local written = redis.call('HGET', meta, 'schema')
  return tonumber(written or '0') ~= nil and tonumber(written or '0') > tonumber(known) and written
end

-- Where a run waits its turn: with its entry's other runs, or with those of its backfill.
local function lane_of(run)
  return run.lane or run.entry
end

-- A text with its marks filled in: @catchup:name@ with one of `texts`, "@catchup!name@", quotes and all,
-- with one of `raws`. Marks are looked for as plain text, which takes less than half the time of a pattern.
local function fill(text, texts, raws)
  local parts, copied, at = {}, 1, 1
  for _ = 1, #text do
    local mark, behind = string.find(text, '@catchup', at, true)
    if not mark then break end
    local kind, name, after = string.match(text, '^([:!])([a-z_]+)@()', behind + 1)
    local value = kind == ':' and texts[name]
    if kind == '!' and string.sub(text, mark - 1, mark - 1) == '"' and string.sub(text, after, after) == '"' then
      value, mark, after = raws[name], mark - 1, after + 1
    end
    if value then
      parts[#parts + 1], parts[#parts + 2] = string.sub(text, copied, mark - 1), value
      copied = after
    end
    at = value and after or behind + 1
  end
  parts[#parts + 1] = string.sub(text, copied)
  return table.concat(parts)
end

-- A text as it is written inside a string of JSON.
local function inside_json(text)
  return (string.gsub(string.sub(cjson.encode(text), 2, -2), '\\/', '/'))
end

-- Fill in what differs between two messages of one template.
local function render(template, id, run, now)
  local slot = rfc3339(run.slot)
  local texts = {
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
  local raws = { is_catchup = (run.trigger == 'catchup') and 'true' or 'false' }
  return fill(template.message, texts, raws)
end

-- Many arguments in few commands: one has room for about eight thousand.
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

-- The run that a template was made for alone, by the template's id; nil when runs share it.
local function run_of_template(id)
  return string.match(id, '^(.-):')
end

-- Store templates that runs share, and note that they are in use; those of single runs come back by run:
-- they are stored with their run, or not at all.
local function store_templates(templates, uses, ids, texts)
  local own, used, now = {}, {}, server_now('0')
  for i, id in ipairs(ids) do
    local run = run_of_template(id)
    if run then
      own[run] = { id, texts[i] }
    else
      redis.call('HSETNX', templates, id, texts[i])
      used[#used + 1], used[#used + 2] = now, id
    end
  end
  write('ZADD', uses, used)
  return own
end

-- Hand messages to a broker that is this very server; in another database, if it is there.
local function push(queue, db, own_db, messages)
  if db ~= own_db then redis.call('SELECT', db) end
  write('LPUSH', queue, messages)
  if db ~= own_db then redis.call('SELECT', own_db) end
end

-- How long after it was sent the leader first looks for evidence that a message was lost: five minutes,
-- and twice as long after each copy. A message that merely waits is never sent again.
local function patience(sends)
  return 300000 * 2 ^ math.min(sends - 1, 8)
end

-- Note that the store can be reached. A gap of more than half a run's lease begins a new stretch:
-- workers could not renew meanwhile, so their runs are left alone for one lease length (see may_take_over).
local function note_contact(key, now, ttl)
  local contact = redis.call('HMGET', key, 'at', 'since')
  local at, since = tonumber(contact[1] or ''), tonumber(contact[2] or '')
  if not at or not since or math.abs(now - at) > ttl / 2 then since = now end
  redis.call('HSET', key, 'at', string.format('%.0f', now), 'since', string.format('%.0f', since))
end

-- Whether workers have had one lease length to renew since the store was last out of reach.
local function may_take_over(key, now, ttl)
  local since = tonumber(redis.call('HGET', key, 'since') or '')
  return not since or now - since >= ttl
end

-- What happened in the hour of `now`, and its place. Eight days are kept, in a ring: an hour is
-- forgotten by being written over.
local function page_of(key, now)
  local hour = math.floor(now / 3600000)
  local place = hour % 192
  local stored = redis.call('HGET', key, place)
  local page = stored and read_json(stored)
  if not page or page.hour ~= hour then page = { hour = hour } end
  return page, place
end

-- Count what happened in the hour of `now`.
local function tally(key, now, counts)
  local page, place = page_of(key, now)
  for name, count in pairs(counts) do page[name] = (tonumber(page[name]) or 0) + count end
  redis.call('HSET', key, place, cjson.encode(page))
end

-- Keep the largest lag of the hour; most are not the largest, and write nothing.
local function tally_lag(key, now, lag)
  local page, place = page_of(key, now)
  if lag <= (tonumber(page.lag) or -1) then return end
  page.lag = lag
  redis.call('HSET', key, place, cjson.encode(page))
end

-- Count the same for good, beside the hours: what never goes back is what a metric can be made of.
local function count_up(key, counts)
  for name, count in pairs(counts) do redis.call('HINCRBY', key, 'ever:' .. name, count) end
end

-- Count how late a run started (ms), in the bucket of a histogram; metrics know the same bounds.
local function count_lag(key, trigger, lag)
  local bucket = 'inf'
  for _, seconds in ipairs({ 1, 5, 15, 60, 300, 900, 3600, 14400, 86400, 604800 }) do
    if lag <= seconds * 1000 then
      bucket = seconds
      break
    end
  end
  count_up(key, { ['lag:' .. trigger .. ':' .. bucket] = 1, ['lag_ms:' .. trigger] = lag })
end

-- Remember an attempt that is over while its run goes on: the last twenty of them. What is known of
-- the attempt that is under way, or was the last, stands in the run itself.
local function remember(run, outcome, ended, error)
  local past = run.past or {}
  past[#past + 1] = {
    attempt = run.attempt, started = run.attempt_started, ended = ended, worker = run.worker,
    outcome = outcome, error = error,
  }
  if #past > 20 then table.remove(past, 1) end
  run.past, run.attempt_started = past, nil
end

-- When the leader looks whether a message was lost. It counts from when the message may start; one that
-- expires is looked at half a minute after that, because clocks differ.
local function look_at(sent, sends, expires)
  local look = sent + patience(math.max(sends, 1))
  return expires and math.min(look, expires + 30000) or look
end

-- Record that a run's message is with the broker since `sent` (server's clock). `run.sent` is when it may start.
local function record_sent(keys, id, run, sent, countdown, expires)
  run.sent, run.countdown = sent + (countdown or 0), countdown
  run.expires = expires and sent + expires or nil
  redis.call('HSET', keys.ledger, id, cjson.encode(run))
  if keys.leases then redis.call('ZADD', keys.leases, look_at(run.sent, run.sends, run.expires), id) end
end

-- Send a run's message: pushed here and now on an atomic broker, else put into the outbox. A run in the
-- outbox has no lease: nothing can be lost that was not sent. `now` may be the leader's idea of time.
-- What a worker releases into the outbox (`keys.unpublished`) it publishes itself; the leader does it
-- should the worker die.
local function dispatch(keys, id, run, own_db, now)
  run.state, run.sends, run.queued, run.sent, run.expires = 'queued', run.sends + 1, now, nil, nil
  run.handed, run.discarded = keys.unpublished and true or nil, nil
  local text = redis.call('HGET', keys.templates, run.template) or ''
  local template = read_json(text)
  if template.queue then
    record_sent(keys, id, run, keys.clock or server_now('0'), template.countdown_ms, template.expires_ms)
    push(template.queue, template.db, own_db, { render(template, id, run, now) })
    if keys.pushed then table.insert(keys.pushed, id) end
  else
    redis.call('HSET', keys.ledger, id, cjson.encode(run))
    redis.call('ZREM', keys.leases, id)
    -- one after the other, however many are decided in the same millisecond
    local last = redis.call('ZRANGE', keys.outbox, -1, -1, 'WITHSCORES')
    redis.call('ZADD', keys.outbox, math.max(now, tonumber(last[2] or '0') + 1), id)
    if keys.unpublished then table.insert(keys.unpublished, id) end
  end
  return #text
end

-- Whether a run's failure has stopped its entry's chain (`on_failure: stop`), and the others that have.
local function stops(stopped, entry, id)
  local found, others = false, {}
  for other in string.gmatch(redis.call('HGET', stopped, entry) or '', '%S+') do
    if other == id then found = true else others[#others + 1] = other end
  end
  return found, others
end

local function stop(stopped, entry, id)
  local _, others = stops(stopped, entry, id)
  others[#others + 1] = id
  redis.call('HSET', stopped, entry, table.concat(others, ' '))
end

-- A chain goes on when each run that has stopped it has succeeded or was discarded. Whether this was one.
local function go_on(stopped, entry, id)
  local found, others = stops(stopped, entry, id)
  if found and #others > 0 then redis.call('HSET', stopped, entry, table.concat(others, ' ')) end
  if found and #others == 0 then redis.call('HDEL', stopped, entry) end
  return found
end

-- What one script may release, in runs and in bytes of their templates: the server answers nobody else
-- meanwhile. It is one budget for all lanes of the script; the last run may exceed the bytes.
local budget = { runs = 100, bytes = 262144 }

-- Leave what a lane still has to the leader's next ticks, after what others have left.
local function leave_to_leader(keys)
  local last = redis.call('ZRANGE', keys.unreleased, -1, -1, 'WITHSCORES')
  redis.call('ZADD', keys.unreleased, tonumber(last[2] or '0') + 1, keys.lane)
end

-- Let waiting runs start, oldest first, while fewer than `capacity` are active (-1: any number) and the
-- budget lasts. What could start beyond it stays in the chain, and its lane is left to the leader. A run
-- that is to be sent later keeps its place: what is behind it waits too.
local function release(keys, capacity, own_db, now)
  if keys.stopped and redis.call('HEXISTS', keys.stopped, keys.lane) == 1 then return {} end
  local room = capacity < 0 and math.huge or capacity - redis.call('ZCARD', keys.active)
  if room <= 0 then return {} end
  local most = math.min(room, math.max(budget.runs, 0))
  local ids = most > 0 and redis.call('ZRANGE', keys.chain, 0, most - 1, 'WITHSCORES') or {}
  local released = {}
  for i = 1, #ids, 2 do
    if budget.bytes <= 0 then break end
    budget.runs, room = budget.runs - 1, room - 1
    local stored = redis.call('HGET', keys.ledger, ids[i])
    local run = read_run(stored)
    local delayed = run and run.delayed
    if delayed and capacity >= 0 then break end
    if not delayed then redis.call('ZREM', keys.chain, ids[i]) end
    if run and not delayed then
      redis.call('ZADD', keys.active, ids[i + 1], ids[i])
      budget.bytes = budget.bytes - (dispatch(keys, ids[i], run, own_db, now) or 0)
      released[#released + 1] = ids[i]
    elseif stored and not run then
      redis.call('ZADD', keys.leases, 0, ids[i]) -- overdue, so that the leader looks at it
    end
  end
  local used_up = budget.runs <= 0 or budget.bytes <= 0
  if used_up and room > 0 and redis.call('ZCARD', keys.chain) > 0 then leave_to_leader(keys) end
  return released
end

-- Revoke what waits in a lane that was cancelled, as far as the budget lasts; how many.
local function revoke_waiting(keys, now)
  local ids = budget.runs > 0 and redis.call('ZRANGE', keys.chain, 0, budget.runs - 1) or {}
  for _, id in ipairs(ids) do
    redis.call('ZREM', keys.chain, id)
    local run = read_run(redis.call('HGET', keys.ledger, id))
    if run then
      run.state, run.finished, run.error = 'revoked', now, 'its backfill was cancelled'
      redis.call('HSET', keys.ledger, id, cjson.encode(run))
      redis.call('ZADD', keys.ended, now, id)
    end
  end
  budget.runs = budget.runs - #ids
  if redis.call('ZCARD', keys.chain) > 0 then leave_to_leader(keys) end
  return #ids
end

-- Up to where everything is decided when an entry is paused: while no beat leads, the watermark stays
-- behind, and what was missed before the pause is missed all the same.
local function decided_until(scheduler, at)
  return math.min(at, tonumber(redis.call('HGET', scheduler, 'watermark') or '') or at)
end

-- Note what was decided about a run that failed or was lost, and the policy that decided it: when the next
-- attempt is, or the reason why there is none.
local function note_decision(run, policy, now, due, reason)
  run.decided = {
    at = now, failures = run.failures or 0, losses = run.losses or 0, next = due, reason = reason,
    max_attempts = policy.max_attempts, retry_delay_ms = policy.retry_delay_ms, retry_backoff = policy.retry_backoff,
    retry_max_delay_ms = policy.retry_max_delay_ms, on_failure = policy.on_failure,
  }
end

-- When a failed run is attempted again; nil when it is not. A permanent failure has no further attempt. Any
-- other has `max_attempts`, `retry_delay` apart; with `retry_backoff` each delay is that many times the one
-- before, up to `retry_max_delay`.
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

-- Record the end of a run: it leaves chain, lease and active runs. One that has used up its
-- attempts becomes a dead letter, and pauses its entry or stops its chain when the policy says so. The
-- run as it is stored now comes back.
local function conclude(keys, id, run, state, policy, now)
  if state == 'dead' then
    tally(keys.hours, now, { dead = 1 })
    if not run.decided or run.decided.at ~= now then note_decision(run, policy, now, nil, 'lost') end
  end
  count_up(keys.hours, { ['ended:' .. (state == 'queued' and 'unreported' or state)] = 1 })
  local lease = run.state == 'running' and tonumber(redis.call('ZSCORE', keys.leases, id) or '')
  run.heartbeat = lease and run.lease_ms and lease - run.lease_ms or nil
  run.state, run.finished, run.owner, run.delayed = state, now, nil, nil
  local encoded = cjson.encode(run)
  redis.call('HSET', keys.ledger, id, encoded)
  redis.call('ZREM', keys.leases, id)
  redis.call('ZREM', keys.active, id)
  redis.call('ZREM', keys.chain, id)
  redis.call('ZADD', keys.ended, now, id)
  if state == 'dead' then
    redis.call('ZADD', keys.dead, now, id)
    if policy.pause_on_failure and redis.call('HEXISTS', keys.paused, run.entry) == 0 then
      redis.call('HSET', keys.paused, run.entry, cjson.encode({
        paused = true, at = now, decided = decided_until(keys.scheduler, now), reason = 'a run is dead',
      }))
      redis.call('INCR', keys.version)
    end
  end
  -- A failure stops the chain until the run is replayed or discarded; what was replaced has not failed.
  local failed = state == 'dead' or (state == 'revoked' and not run.replaced)
  if failed and policy.on_failure == 'stop' and policy.capacity >= 0 then stop(keys.stopped, run.entry, id) end
  if state == 'succeeded' then go_on(keys.stopped, run.entry, id) end
  return encoded
end

-- After an end: the next of the chain, unless a failure has stopped it.
local function release_next(keys, _, policy, own_db, now)
  return release(keys, policy.capacity, own_db, now)
end
