-- Hold entries whose catch-up needs an approval: a pause that the leader makes.
--
-- KEYS leader   hash    owner, epoch
-- KEYS paused   hash    entry -> {paused, at, decided, held, held_at} as JSON
-- KEYS version  string  counter of changes from outside; grows, so that the leader reads the pauses
-- ARGV owner, epoch
-- ARGV entries          JSON: list of {name, decided (ms), number of runs}
-- ARGV now_ms           slot time
-- RETURNS 1, or false if another beat leads
if not leads() then return false end
for _, one in ipairs(cjson.decode(args.entries)) do
  redis.call('HSETNX', keys.paused, one[1], cjson.encode({
    paused = true, at = one[2], decided = one[2], held = one[3], held_at = tonumber(args.now_ms), reason = '',
  }))
end
redis.call('INCR', keys.version)
return 1
