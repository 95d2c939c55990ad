-- Store which entries and backfills fail now, and the oldest due slot that is undecided.
--
-- KEYS leader     hash  owner, epoch
-- KEYS scheduler  hash  undecided: the oldest due slot that is not decided (ms), or "" for none
-- KEYS failing    hash  entry, or lane of a backfill -> reason, since, times and next try as JSON
-- ARGV owner, epoch
-- ARGV undecided
-- ARGV failing          JSON: the new content of the hash
-- RETURNS 1, or false if another beat leads
if not leads() then return false end
redis.call('HSET', keys.scheduler, 'undecided', args.undecided)
redis.call('DEL', keys.failing)
for name, text in pairs(cjson.decode(args.failing)) do redis.call('HSET', keys.failing, name, text) end
return 1
