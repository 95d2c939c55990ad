-- Renew the leader's lease in the middle of a tick, or beside the ticks. The watermark stays: the tick is not over.
--
-- KEYS leader     hash  owner, epoch, beat (grows with each renewal), at
-- KEYS scheduler  hash  last_tick
-- ARGV owner, epoch
-- ARGV known_beat       the latest renewal that the owner knows of
-- ARGV now_ms           slot time of a renewal by the tick, which is alive; or ""
-- RETURNS the new beat; false if another beat leads, or if the server has lost renewals
if not leads() then return false end
local beat = tonumber(redis.call('HGET', keys.leader, 'beat') or '0') or 0
if beat < tonumber(args.known_beat) then return false end
redis.call('HSET', keys.leader, 'beat', beat + 1, 'at', this_moment())
if args.now_ms ~= '' then redis.call('HSET', keys.scheduler, 'last_tick', args.now_ms) end
return beat + 1
