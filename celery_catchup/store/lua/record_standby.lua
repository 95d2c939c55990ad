-- Record that a beat stands by, and since when its entries differ from the leader's.
--
-- KEYS meta      hash  declares: the digest of the leader's entries
-- KEYS standbys  hash  beat -> "seen since digest": when it was last seen, since when its digest differs
--                      from the leader's or -1 (ms), and the digest
-- ARGV owner           the beat
-- ARGV declares        the digest of its entries, "version:hash"; digests of two versions are not compared
-- ARGV now_ms          slot time
-- ARGV forget_ms       how long a silent beat is remembered
-- ARGV most            most beats that are remembered
-- ARGV restart_ms      how long a beat may be away during a restart
-- RETURNS since when the digests differ (ms), or -1
local standbys, owner, declares, now = keys.standbys, args.owner, args.declares, tonumber(args.now_ms)
local leaders = redis.call('HGET', keys.meta, 'declares') or ''
local same_version = string.match(leaders, '^%d+:') == string.match(declares, '^%d+:')

-- A beat that restarts again and again differs since its first start.
local oldest, oldest_seen, count, since = nil, math.huge, 1, -1
local records = redis.call('HGETALL', standbys)
for i = 1, #records, 2 do
  local seen, differs, digest = string.match(records[i + 1], '^(%d+) (%-?%d+) (%S+)$')
  seen, differs = tonumber(seen) or 0, tonumber(differs) or -1
  local ours = records[i] == owner or (digest == declares and seen >= now - tonumber(args.restart_ms))
  if ours and differs >= 0 and (since < 0 or differs < since) then since = differs end
  if seen < now - tonumber(args.forget_ms) then
    redis.call('HDEL', standbys, records[i])
  elseif records[i] ~= owner then
    count = count + 1
    if seen <= oldest_seen then oldest, oldest_seen = records[i], seen end
  end
end
if count > tonumber(args.most) then redis.call('HDEL', standbys, oldest) end

if not same_version or leaders == declares then
  since = -1
elseif since < 0 then
  since = now
end
redis.call('HSET', standbys, owner, string.format('%d %d %s', now, since, declares))
return since
