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
if not leads(KEYS[1], ARGV[1], ARGV[2]) then return false end
local forgotten = 0
for i = 4, #ARGV do
  local id = ARGV[i]
  local ended = tonumber(redis.call('ZSCORE', KEYS[4], id) or 'inf')
  if ended < tonumber(ARGV[3]) then
    local template = read_json(redis.call('HGET', KEYS[2], id)).template
    if type(template) == 'string' and string.sub(template, 1, #id + 1) == id .. ':' then
      redis.call('HDEL', KEYS[8], template)
    end
    redis.call('HDEL', KEYS[2], id)
    redis.call('ZREM', KEYS[3], id)
    redis.call('ZREM', KEYS[4], id)
    redis.call('ZREM', KEYS[5], id)
    redis.call('HDEL', KEYS[6], id)
    redis.call('HDEL', KEYS[7], id)
    redis.call('ZREM', KEYS[9], id)
    forgotten = forgotten + 1
  end
end
return forgotten
