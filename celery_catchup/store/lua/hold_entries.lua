-- Hold entries whose catch-up needs an approval: a pause that the leader makes.
--
-- KEYS leader   hash    owner, epoch
-- KEYS paused   hash    entry -> {paused, at, decided, held, held_at, earlier} as JSON
-- KEYS version  string  counter of changes from outside; grows, so that the leader reads the pauses
-- ARGV owner, epoch
-- ARGV entries          JSON: list of {name, decided (ms), number of runs}
-- ARGV now_ms           slot time
-- RETURNS 1, or false if another beat leads
if not leads() then return false end
for _, one in ipairs(cjson.decode(args.entries)) do
  local before = read_json(redis.call('HGET', keys.paused, one[1]))
  -- A resume that discards approves nothing of what was missed after it; any other one stays as it is.
  if not before.at or (before.discard and not before.paused) then
    redis.call('HSET', keys.paused, one[1], cjson.encode({
      paused = true, at = before.resumed or one[2], decided = before.decided or before.at or one[2], held = one[3],
      held_at = tonumber(args.now_ms), reason = '', earlier = unseen_pauses(before),
    }))
  end
end
redis.call('INCR', keys.version)
return 1
