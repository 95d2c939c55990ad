-- Keep a value of a run: for its next attempts, or to show.
--
-- KEYS ledger  hash  run id -> run as JSON
-- KEYS notes   hash  run id -> {checkpoints, snapshots, outputs, progress} as JSON
-- ARGV run_id
-- ARGV owner         random per execution; a worker that has lost the run keeps nothing
-- ARGV kind          checkpoints, snapshots, outputs or progress
-- ARGV name
-- ARGV value         as JSON
-- ARGV once          "1" to keep the first value
-- ARGV now_ms        0 for the server's clock
-- ARGV most_names    most values of a run
-- ARGV most_bytes    most bytes of all values together
-- RETURNS {"kept", value as JSON}, {"many", number}, {"long", bytes}, {"lost"} or {"unknown"}
local run = load_run(args.run_id)
if not run then return { 'unknown' } end
if run.owner ~= args.owner then return { 'lost' } end
local notes = cjson.decode(redis.call('HGET', keys.notes, args.run_id) or '{}')
local page = notes[args.kind] or {}
if args.once == '1' and page[args.name] then return { 'kept', page[args.name] } end
-- Values stay text, so that they come back unchanged.
page[args.name] = args.value
notes[args.kind] = page
local count, encoded = 0, cjson.encode(notes)
for _, names in pairs(notes) do
  for _ in pairs(names) do count = count + 1 end
end
if count > tonumber(args.most_names) then return { 'many', count } end
if #encoded > tonumber(args.most_bytes) then return { 'long', #encoded } end
redis.call('HSET', keys.notes, args.run_id, encoded)
if args.kind == 'checkpoints' then
  run.checkpoint = { name = args.name, at = server_now(args.now_ms) }
  store_run(args.run_id, run)
end
return { 'kept', args.value }
