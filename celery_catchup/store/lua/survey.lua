-- Summarise many runs without sending their records: their slots, and groups of neighbours of one kind.
--
-- KEYS ledger     hash    run id -> run as JSON
-- KEYS ...                zsets of run ids by slot (ms), one for each entry
-- ARGV first_ms, last_ms  the range of slots
-- ARGV ...                for each zset: how many runs of the range to skip, how many to read, '1' to group neighbours
-- RETURNS for each zset {slots in order, separated by commas, JSON [[state, trigger, schedule, count; for a single run its
--         id and when it started]…]}; the state 'unreported' is that of a queued run whose end no worker reports;
--         runs that cannot be read are left out
local find, match = string.find, string.match

-- Read one field of a record that contains no other record: names occur once, and quotes inside values are escaped.
local function field(text, name)
  local _, to = find(text, name, 1, true)
  return to and match(text, '^"?([%w_]+)', to + 1)
end

-- Return state, trigger and schedule of a run; and the run, if its record had to be decoded, which takes twice as long.
local function summary(text)
  if text and not find(text, '{', 2, true) then
    local state, trigger, schedule = field(text, '"state":'), field(text, '"trigger":'), field(text, '"schedule":')
    if state == 'queued' and find(text, '"unreported":true', 1, true) then state = 'unreported' end
    if state and trigger and tonumber(schedule) then return state, trigger, schedule end
  end
  local run = read_run(text)
  if not run then return nil end
  local state = run.state == 'queued' and run.unreported and 'unreported' or run.state
  local schedule = type(run.schedule) == 'number' and run.schedule or -1
  return state, tostring(run.trigger), string.format('%d', schedule), run
end

local function summarise(key, skipped, count, grouped)
  local found = redis.call('ZRANGEBYSCORE', key, args.first_ms, args.last_ms, 'WITHSCORES', 'LIMIT', skipped, count)
  local ids, slots, groups, last = {}, {}, {}, {}
  for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
  for i, text in ipairs(fields_of(keys.ledger, ids)) do
    local state, trigger, schedule, run = summary(text)
    if state then
      slots[#slots + 1] = found[2 * i]
      if grouped and last[1] == state and last[2] == trigger and last[3] == schedule then
        last[4], last[5], last[6] = last[4] + 1, nil, nil
      else
        local started = run and run.started or not run and tonumber(field(text, '"started":') or '')
        last = { state, trigger, schedule, 1, ids[i], started or cjson.null }
        groups[#groups + 1] = last
      end
    end
  end
  return { table.concat(slots, ','), cjson.encode(groups) }
end

local answers = {}
for i = 0, #KEYS - first_key do
  local at = first_arg + 3 * i
  answers[i + 1] = summarise(KEYS[first_key + i], ARGV[at], ARGV[at + 1], ARGV[at + 2] == '1')
end
return answers
