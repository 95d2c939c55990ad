-- Store entries that are new, or whose schedule or policy has changed.
--
-- KEYS leader        hash  owner, epoch
-- KEYS first_seen    hash  entry -> instant (ms); kept from the first sight on
-- KEYS anchors       hash  entry -> phase of its intervals (ms); kept, too
-- KEYS fingerprints  hash  entry -> what its schedule looked like
-- KEYS policies      hash  entry -> policy as JSON, for the scripts that release and end runs
-- KEYS changed       hash  entry -> since when the current schedule holds (ms)
-- KEYS meta          hash  schema version of the stored state
-- KEYS scheduler     hash  watermark
-- KEYS decided       hash  entry -> its watermark (ms)
-- KEYS stopped       hash  entry -> runs whose failure stopped its chain, separated by blanks
-- KEYS left_off      hash  entry that is not declared any more -> up to where it is decided (ms)
-- ARGV owner, epoch
-- ARGV schema              version to store if there is none, with the last part of the entries; "" before
-- ARGV watermark           replaces a missing or impossible one, or ""
-- ARGV declares            a digest of the leader's entries, for standbys to compare; stored with the schema
-- ARGV entries             JSON: list of {name, first_seen, anchor, fingerprint, policy, changed,
--                          decided}; null for changed or decided leaves it
-- ARGV left_off            JSON: entry -> its watermark, or null for an entry that is back
-- RETURNS 1, or false if another beat leads
if not leads() then return false end
if args.schema ~= '' then
  redis.call('HSETNX', keys.meta, 'schema', args.schema)
  redis.call('HSET', keys.meta, 'declares', args.declares)
end
if args.watermark ~= '' then redis.call('HSET', keys.scheduler, 'watermark', args.watermark) end
local stopped = redis.call('EXISTS', keys.stopped) == 1
for _, entry in ipairs(cjson.decode(args.entries)) do
  redis.call('HSETNX', keys.first_seen, entry.name, entry.first_seen)
  redis.call('HSETNX', keys.anchors, entry.name, entry.anchor)
  redis.call('HSET', keys.fingerprints, entry.name, entry.fingerprint)
  redis.call('HSET', keys.policies, entry.name, entry.policy)
  if stopped and read_json(entry.policy).on_failure ~= 'stop' then redis.call('HDEL', keys.stopped, entry.name) end
  if type(entry.changed) == 'string' then redis.call('HSET', keys.changed, entry.name, entry.changed) end
  if type(entry.decided) == 'string' then redis.call('HSET', keys.decided, entry.name, entry.decided) end
end
for name, at in pairs(cjson.decode(args.left_off)) do
  if type(at) == 'string' then redis.call('HSET', keys.left_off, name, at) else redis.call('HDEL', keys.left_off, name) end
end
return 1
