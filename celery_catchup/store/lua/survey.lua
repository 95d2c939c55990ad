-- Tell what became of many runs without sending their records: their slots, and stretches of runs of one mark.
--
-- KEYS ledger     hash    run id -> run as JSON
-- KEYS ...                zsets of run ids by slot (ms), one for each entry
-- ARGV first_ms, last_ms  runs with other slots are left out
-- ARGV marks              JSON: "state trigger" -> its mark; with " unreported" behind it, of those
-- ARGV ...                for each zset how many of these runs to pass over, and how many to look at
-- RETURNS for each zset {slots in order, parted by commas,
--         JSON [[mark, schedule, how many; of a lone one its id and when it started]…]};
--         a run that cannot be read is left out
local marks, find, sub = cjson.decode(args.marks), string.find, string.sub

-- Whether a word stands in a text. Records of one shape have it in the same place, so that is where to look first.
local function stands(text, word)
  if sub(text, word.at, word.to) == word.text then return true end
  local at, to = find(text, word.text, 1, true)
  if at then word.at, word.to = at, to end
  return at ~= nil
end

-- Whether a record tells the same as the one before, without reading it; false when only reading can tell. Inside of
-- a text quotes are escaped, and a record without another one in it has each name once.
local function alike(text, words)
  if find(text, '{', 2, true) then return false end
  if not (stands(text, words.state) and stands(text, words.trigger) and stands(text, words.schedule)) then return false end
  local behind = sub(text, words.schedule.to + 1, words.schedule.to + 1)
  return (behind == ',' or behind == '}') and not (words.doubtful and find(text, '"unreported"', 1, true))
end

local function words_of(run, mark)
  if run.unreported or type(run.schedule) ~= 'number' then return nil end
  return {
    state = { text = '"state":"' .. run.state .. '"', at = 1, to = 1 },
    trigger = { text = '"trigger":"' .. run.trigger .. '"', at = 1, to = 1 },
    schedule = { text = '"schedule":' .. string.format('%d', run.schedule), at = 1, to = 1 },
    doubtful = marks[run.state .. ' ' .. run.trigger .. ' unreported'] ~= mark,
  }
end

local function mark_of(run)
  return run and marks[run.state .. ' ' .. tostring(run.trigger) .. (run.unreported and ' unreported' or '')]
end

local function look(key, skipped, count)
  local found = redis.call('ZRANGEBYSCORE', key, args.first_ms, args.last_ms, 'WITHSCORES', 'LIMIT', skipped, count)
  local ids, slots, stretches, last, words = {}, {}, {}, nil, nil
  for i = 1, #found, 2 do ids[#ids + 1] = found[i] end
  for i, text in ipairs(fields_of(keys.ledger, ids)) do
    local joins, run, mark = text and words and alike(text, words), nil, nil
    if not joins then
      run = read_run(text)
      mark = mark_of(run)
      joins = mark and last and last[1] == mark and last[2] == (run.schedule or -1)
      words = mark and words_of(run, mark)
    end
    if joins then
      last[3], last[4], last[5] = last[3] + 1, nil, nil
    elseif mark then
      last = { mark, run.schedule or -1, 1, ids[i], run.started or cjson.null }
      stretches[#stretches + 1] = last
    end
    if joins or mark then slots[#slots + 1] = found[2 * i] end
  end
  return { table.concat(slots, ','), cjson.encode(stretches) }
end

local answers = {}
for i = 0, #KEYS - first_key do
  answers[i + 1] = look(KEYS[first_key + i], ARGV[first_arg + 2 * i], ARGV[first_arg + 2 * i + 1])
end
return answers
