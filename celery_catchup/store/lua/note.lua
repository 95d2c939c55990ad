-- Keep something that a run wants to remember across its attempts, or to show.
--
-- KEYS ledger  hash  run id -> run as JSON
-- KEYS notes   hash  run id -> {checkpoints, snapshots, outputs, progress} as JSON
-- ARGV run_id
-- ARGV owner         who executes it; a worker that has lost the run keeps nothing
-- ARGV kind          checkpoints, snapshots, outputs or progress
-- ARGV name
-- ARGV value         as JSON
-- ARGV once          "1" to keep the first value
-- ARGV now_ms        0 in production: the server's own clock decides
-- ARGV most_names    how many values a run may keep
-- ARGV most_bytes    how long all of them may be together
-- RETURNS {"kept", value as JSON}, {"many", how many}, {"long", how long}, {"lost"} or {"unknown"}
local stored = redis.call('HGET', KEYS[1], ARGV[1])
local run = read_run(stored)
if not run then return { 'unknown' } end
if run.owner ~= ARGV[2] then return { 'lost' } end
local notes = cjson.decode(redis.call('HGET', KEYS[2], ARGV[1]) or '{}')
local page = notes[ARGV[3]] or {}
if ARGV[6] == '1' and page[ARGV[4]] then return { 'kept', page[ARGV[4]] } end
-- Values stay text: they come back as they went in, whatever they are.
page[ARGV[4]] = ARGV[5]
notes[ARGV[3]] = page
local count, encoded = 0, cjson.encode(notes)
for _, names in pairs(notes) do
  for _ in pairs(names) do count = count + 1 end
end
if count > tonumber(ARGV[8]) then return { 'many', count } end
if #encoded > tonumber(ARGV[9]) then return { 'long', #encoded } end
redis.call('HSET', KEYS[2], ARGV[1], encoded)
if ARGV[3] == 'checkpoints' then
  run.checkpoint = { name = ARGV[4], at = server_now(ARGV[7]) }
  redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(run))
end
return { 'kept', ARGV[5] }
