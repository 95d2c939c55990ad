-- Judge slots whose deadline has passed (`expect_within`), and look again at those that are overdue.
--
-- A slot is overdue if no run of it has succeeded, unless a person or the policy decided that it should not run. It stays
-- among the overdue ones until a run of it succeeds, or that is decided. A slot that was lost (outside the window, beyond
-- a cap) will not run by itself, so it leaves them after a while.
--
-- A call whose answer was lost may be repeated: slots that are judged are all reported, and those that are looked at again
-- as soon as they are not overdue. The leader knows what it has reported.
--
-- KEYS leader     hash  owner, epoch
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS deadlines  hash  entry -> up to where its slots are judged, as JSON
-- KEYS overdue    zset  overdue slots as JSON [entry, schedule, slot], by deadline (ms)
-- KEYS ...              two per entry: its runs (zset by slot), its skips (zset by last slot)
-- ARGV owner, epoch
-- ARGV lost             JSON: reasons of skips after which a success is still expected
-- ARGV lost_before      lost slots with an earlier deadline (ms) are not overdue any more
-- ARGV most             overdue slots to keep
-- ARGV batch            JSON: for each entry {name, record: its new field of `deadlines` or null, decided: its watermark
--                       (ms), slots: list of {schedule, slot, deadline, member of `overdue`}}
-- RETURNS JSON: list of {number of the entry, number of the slot, outcome, run id or "", state, reason or "undecided"};
--         the outcomes are "overdue", "recovered", "settled", and "damaged" for an entry with a key of another type;
--         or false if another beat leads
if not leads() then return false end
local lost, found = {}, {}
for _, reason in ipairs(cjson.decode(args.lost)) do lost[reason] = true end

-- The run of a slot that counts most: one that succeeded, else the last one that is found.
local function run_at(own, schedule, slot)
  local known, chosen
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', own, slot, slot, 'LIMIT', 0, 20)) do
    local run = load_run(id)
    if run and run.schedule == schedule then
      known, chosen = run, id
      if run.state == 'succeeded' then break end
    end
  end
  return known, chosen or ''
end

-- Why a slot was skipped; nil if it was not. Spans are few, and each is stored under its last slot.
local function reason_at(skips, schedule, slot)
  for _, text in ipairs(redis.call('ZRANGEBYSCORE', skips, slot, '+inf', 'LIMIT', 0, 50)) do
    local fine, span = pcall(cjson.decode, text)
    if fine and type(span) == 'table' then
      local place, first, reason = span[1] or span.schedule, span[2] or span.first, span[5] or span.reason
      if place == schedule and (tonumber(first) or slot + 1) <= slot then return reason end
    end
  end
end

-- Return "succeeded", "settled" if no success is expected, or "overdue"; and the run, and the word for its state.
local function outcome_of(own, skips, one, decided)
  local run, id = run_at(own, one[1], one[2])
  if run then
    if run.state == 'succeeded' then return 'succeeded', id, run.state end
    -- Replaced, discarded, or executed without a report.
    if (run.state == 'revoked' and run.replaced) or run.state == 'failed' or run.unreported then return 'settled', id, run.state end
    return 'overdue', id, run.state
  end
  local reason = reason_at(skips, one[1], one[2])
  if not reason then return one[2] > decided and 'overdue' or 'settled', '', 'undecided' end
  if lost[reason] and one[3] >= tonumber(args.lost_before) then return 'overdue', '', reason end
  return 'settled', '', reason
end

for i, entry in ipairs(cjson.decode(args.batch)) do
  local own, skips = KEYS[first_key + 2 * i - 2], KEYS[first_key + 2 * i - 1]
  local judges = type(entry.record) == 'string'
  if type(redis.pcall('ZCARD', own)) ~= 'number' or type(redis.pcall('ZCARD', skips)) ~= 'number' then
    found[#found + 1] = { i - 1, 0, 'damaged', '', '' }
  else
    for j, one in ipairs(entry.slots) do
      local outcome, id, word = outcome_of(own, skips, one, entry.decided)
      local told
      if outcome == 'overdue' then
        told = judges and 'overdue'
        if judges and redis.call('ZCARD', keys.overdue) < tonumber(args.most) then redis.call('ZADD', keys.overdue, one[3], one[4]) end
      elseif redis.call('ZREM', keys.overdue, one[4]) == 1 or not judges then
        told = outcome == 'succeeded' and 'recovered' or 'settled'
      end
      if told then found[#found + 1] = { i - 1, j - 1, told, id, word } end
    end
    if judges then redis.call('HSET', keys.deadlines, entry.name, entry.record) end
  end
end
return #found > 0 and cjson.encode(found) or '[]'
