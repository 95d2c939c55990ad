-- Keep a part of the changes of one call until all of them are written together.
--
-- KEYS staged  zset  parts by the id of their call, which begins with the time (s)
-- KEYS meta    hash  schema version of the stored state
-- ARGV schema, id
-- ARGV part          number of the part
-- ARGV changes       as write_entries.lua takes them
-- ARGV oldest        lowest id to keep: parts of a call that never ended are removed
-- RETURNS 1, or the schema if a newer version has written the state
local newer = newer_schema()
if newer then return newer end
redis.call('ZREMRANGEBYSCORE', keys.staged, '-inf', '(' .. args.oldest)
redis.call('ZADD', keys.staged, args.id, string.format('%05d', tonumber(args.part)) .. args.changes)
return 1
