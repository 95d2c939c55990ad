-- Forget ended runs of an entry that are older than the ledger keeps.
--
-- KEYS leader   hash  owner, epoch
-- KEYS ledger   hash  run id -> run as JSON
-- KEYS runs     zset  run id by slot (ms), all entries
-- KEYS ended    zset  runs by the time they ended (ms)
-- KEYS dead     zset  dead letters by the time they died (ms)
-- KEYS letters  hash  run id -> what is known of its failure, as JSON
-- KEYS notes    hash  run id -> what the run wanted to keep
-- KEYS templates hash template id -> message and queue as JSON; that of a single run goes with it
-- KEYS own      zset  the entry's runs by slot (ms)
-- ARGV owner, epoch
-- ARGV ended_before   runs that ended earlier than this are forgotten (ms, server's clock)
-- ARGV ...            ids of ended runs of this entry
-- RETURNS how many runs were forgotten, or false when somebody else leads
if not leads() then return false end
local forgotten = 0
for i = first_arg, #ARGV do
  local id = ARGV[i]
  local ended = tonumber(redis.call('ZSCORE', keys.ended, id) or 'inf')
  if ended < tonumber(args.ended_before) then
    local template = read_json(redis.call('HGET', keys.ledger, id)).template
    if type(template) == 'string' and run_of_template(template) == id then
      redis.call('HDEL', keys.templates, template)
    end
    for _, key in ipairs({ keys.ledger, keys.letters, keys.notes }) do redis.call('HDEL', key, id) end
    for _, key in ipairs({ keys.runs, keys.ended, keys.dead, keys.own }) do redis.call('ZREM', key, id) end
    forgotten = forgotten + 1
  end
end
return forgotten
