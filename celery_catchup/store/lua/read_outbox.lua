-- Read runs of the outbox with their templates, as many as fit into a number of bytes, and at least one.
--
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS templates  hash  template id -> message and queue, or base and inputs, as JSON
-- ARGV most_bytes
-- ARGV ...              run ids
-- RETURNS per run its JSON and that of its template, "" for what is missing; a template that is the same as that of
--         the run before is `=`
local found, bytes, before = {}, 0, nil
for i = first_arg, #ARGV do
  local stored = redis.call('HGET', keys.ledger, ARGV[i]) or ''
  local run = read_run(stored)
  local template = run and run.template
  local text = ''
  if type(template) == 'string' then
    text = template == before and '=' or redis.call('HGET', keys.templates, template) or ''
  end
  bytes, before = bytes + #stored + #text, template
  if #found > 0 and bytes > tonumber(args.most_bytes) then break end
  found[#found + 1], found[#found + 2] = run and stored or '', text
end
return found
