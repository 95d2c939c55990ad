-- Mark the shared templates that a part of the ledger uses; the leader goes through all parts.
--
-- KEYS ledger         hash  run id -> run as JSON
-- KEYS templates      hash  template id -> message and queue, or base and inputs, as JSON
-- KEYS template_uses  zset  shared templates by last use (ms)
-- ARGV cursor               0 to begin
-- ARGV count                about how many runs to read
-- RETURNS the next cursor, 0 at the end
local found = redis.call('HSCAN', keys.ledger, args.cursor, 'COUNT', args.count)
local now, seen, used, ids = server_now('0'), {}, {}, {}
local function mark(id)
  if id and not seen[id] and not run_of_template(id) then
    seen[id] = true
    used[#used + 1], used[#used + 2] = now, id
    ids[#ids + 1] = id
  end
end
for i = 2, #found[2], 2 do mark(string.match(found[2][i], '"template":%s*"([^"]+)"')) end
for _, text in ipairs(fields_of(keys.templates, ids)) do mark(text and string.match(text, '^{"base": "(%x+)"')) end
write('ZADD', keys.template_uses, used)
return found[1]
