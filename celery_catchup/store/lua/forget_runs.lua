-- Forget ended runs of an entry that are older than the ledger keeps.
--
-- KEYS leader   hash  owner, epoch
-- KEYS ledger   hash  run id -> run as JSON
-- KEYS runs     zset  runs of all entries by slot (ms)
-- KEYS ended    zset  ended runs by end (ms)
-- KEYS dead     zset  dead letters by end (ms)
-- KEYS letters  hash  run id -> failure as JSON
-- KEYS notes    hash  run id -> notes as JSON
-- KEYS templates hash template id -> message and queue, or base and inputs, as JSON; the template of a single run goes with it
-- KEYS own      zset  the entry's runs by slot (ms)
-- ARGV owner, epoch
-- ARGV ended_before   forget runs that ended earlier (ms, server's clock)
-- ARGV ...            ids of ended runs of this entry
-- RETURNS the number of forgotten runs, or false if another beat leads
if not leads() then return false end
local forgotten = 0
for i = first_arg, #ARGV do
  local id = ARGV[i]
  local ended = tonumber(redis.call('ZSCORE', keys.ended, id) or 'inf')
  if ended < tonumber(args.ended_before) then
    forget_run(id)
    forgotten = forgotten + 1
  end
end
return forgotten
