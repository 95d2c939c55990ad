-- Note which shared templates some runs of the ledger use; the leader goes through all of them, part by part.
--
-- KEYS ledger         hash  run id -> run as JSON
-- KEYS template_uses  zset  templates that runs share, by the time they were last used (ms)
-- ARGV cursor               where to go on, 0 to begin
-- ARGV count                how many runs to look at, about
-- RETURNS where to go on, 0 at the end
local found = redis.call('HSCAN', keys.ledger, args.cursor, 'COUNT', args.count)
local now, seen, used = server_now('0'), {}, {}
for i = 2, #found[2], 2 do
  local id = string.match(found[2][i], '"template":%s*"([^"]+)"')
  if id and not seen[id] and not run_of_template(id) then
    seen[id] = true
    used[#used + 1], used[#used + 2] = now, id
  end
end
write('ZADD', keys.template_uses, used)
return found[1]
