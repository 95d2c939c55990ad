-- Create, change and delete stored entries: all of the changes, or none of them.
--
-- A new entry counts from now on, and one with a new schedule from where the scheduler is: both are written like the
-- end of a pause, because the scheduler's watermark may pass their first slots before the leader knows them.
--
-- KEYS entries          hash    stored entry -> its fields as JSON
-- KEYS revisions        zset    stored entries by the revision of their last change; negative for deleted ones
-- KEYS entries_version  string  the latest revision
-- KEYS staged           zset    parts of changes by the id of their call
-- KEYS accepted         hash    declared entry -> record
-- KEYS meta             hash    schema version of the stored state
-- KEYS scheduler        hash    the scheduler's watermark
-- KEYS first_seen       hash    entry -> instant (ms)
-- KEYS anchors          hash    entry -> phase of its intervals (ms)
-- KEYS fingerprints     hash    entry -> what its schedule looked like
-- KEYS changed          hash    entry -> since when the current schedule holds (ms)
-- KEYS paused           hash    entry -> {paused, at, …} as JSON
-- KEYS left_off, removed
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- ARGV schema
-- ARGV now_ms                   slot time of the change
-- ARGV id, parts                the staged parts of this call, or "" and 0
-- ARGV changes                  three lines for each change: expected revision (0: must not exist), effect ("begin": it
--                               counts from now on, "reschedule", or "none") and 0 or another instant to begin at;
--                               name; record, or nothing to delete it
-- ARGV change           the record of this change, for the audit trail, or "" if the leader makes it
-- RETURNS {1, revision}, or {0, name, why, revision, …} for the first conflicts ("exists", "missing", "changed",
--         "declared"), or {0, "", "unstaged", 0}, or {0, "", "schema", version}; nothing is written then
local newer = newer_schema()
if newer then return { 0, '', 'schema', newer } end
local names, records, expected, effects, instants = {}, {}, {}, {}, {}
local function read(lines)
  for revision, effect, at, name, record in string.gmatch(lines, '(%d+) (%l+) (%d+)\n([^\n]*)\n([^\n]*)\n') do
    local i = #names + 1
    names[i], records[i], expected[i], effects[i] = name, record, tonumber(revision), effect
    instants[i] = at ~= '0' and at or args.now_ms
  end
end
if args.id ~= '' then
  local parts = redis.call('ZRANGEBYSCORE', keys.staged, args.id, args.id)
  if #parts ~= tonumber(args.parts) then return { 0, '', 'unstaged', 0 } end
  for _, part in ipairs(parts) do read(string.sub(part, 6)) end
else
  read(args.changes)
end

local declared = fields_of(keys.accepted, names)
local conflicts = { 0 }
for i, name in ipairs(names) do
  local revision = tonumber(redis.call('ZSCORE', keys.revisions, name) or '0')
  local exists, why = revision > 0, nil
  if expected[i] == 0 then
    why = exists and 'exists' or (declared[i] and 'declared')
  elseif revision ~= expected[i] then
    why = exists and 'changed' or 'missing'
  end
  if why and #conflicts < 30 then
    for _, value in ipairs({ name, why, math.max(revision, 0) }) do table.insert(conflicts, value) end
  end
end
if #conflicts > 1 then return conflicts end

record_change()
local revision = redis.call('INCR', keys.entries_version)
local function resumed(at) return cjson.encode({ paused = false, at = tonumber(at), resumed = tonumber(at) }) end
local begun, rescheduled = resumed(args.now_ms), resumed(decided_until(tonumber(args.now_ms)))
local pauses, first_seen = fields_of(keys.paused, names), fields_of(keys.first_seen, names)
local texts, revisions, gone, back, seen, pausing, resuming = {}, {}, {}, {}, {}, {}, {}
local again, anchors = {}, {}
local function put(list, name, value) list[#list + 1], list[#list + 2] = name, value end
for i, name in ipairs(names) do
  local effect = effects[i]
  put(revisions, records[i] == '' and -revision or revision, name)
  if records[i] == '' then
    gone[#gone + 1] = name
    if pauses[i] then resuming[#resuming + 1] = name end
  else
    put(texts, name, records[i])
    if effect == 'begin' then
      back[#back + 1] = name
      if not first_seen[i] then
        put(seen, name, instants[i])
      elseif expected[i] == 0 then
        -- Another entry of a known name: its intervals count from now on, and its schedule has not changed.
        again[#again + 1] = name
        put(anchors, name, instants[i])
      end
      local pause = instants[i] == args.now_ms and begun or resumed(instants[i])
      if not (pauses[i] and read_json(pauses[i]).paused) then put(pausing, name, pause) end
    elseif effect == 'reschedule' then
      local pause = read_json(pauses[i])
      if not pause.at then
        put(pausing, name, rescheduled)
      elseif not pause.paused then
        -- A commit under way, of the old schedule, removes the record that it has read, and must leave this one.
        pause.revision = revision
        put(pausing, name, cjson.encode(pause))
      end
    end
  end
end
write('HSET', keys.entries, texts)
write('HDEL', keys.entries, gone)
write('ZADD', keys.revisions, revisions)
write('HSET', keys.first_seen, seen)
write('HSET', keys.anchors, anchors)
write('HDEL', keys.fingerprints, again)
write('HDEL', keys.changed, again)
write('HSET', keys.paused, pausing)
write('HDEL', keys.paused, resuming)
write('HDEL', keys.left_off, back)
write('HDEL', keys.removed, back)
if args.id ~= '' then redis.call('ZREMRANGEBYSCORE', keys.staged, args.id, args.id) end
return { 1, revision }
