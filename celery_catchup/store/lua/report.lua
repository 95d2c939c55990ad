-- Report which entries and backfills fail at present, and since when the oldest due slot is undecided.
--
-- KEYS leader     hash  owner, epoch
-- KEYS scheduler  hash  undecided: the oldest due slot that is not decided (ms), or "" for none
-- KEYS failing    hash  entry, or lane of a backfill -> reason, since, times and next try as JSON
-- ARGV owner, epoch
-- ARGV undecided
-- ARGV failing          JSON: what the hash is to hold
-- RETURNS 1, or 0 when somebody else leads
if not leads(KEYS[1], ARGV[1], ARGV[2]) then return 0 end
redis.call('HSET', KEYS[2], 'undecided', ARGV[3])
redis.call('DEL', KEYS[3])
for name, text in pairs(cjson.decode(ARGV[4])) do redis.call('HSET', KEYS[3], name, text) end
return 1
