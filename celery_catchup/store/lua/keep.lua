-- Renew the leader's lease in the middle of a tick. The watermark stays: the tick is not over.
--
-- KEYS leader     hash  owner, epoch, beat (grows with each renewal)
-- KEYS scheduler  hash  last_tick
-- ARGV owner, epoch
-- ARGV known_beat       the latest renewal that the owner knows of
-- ARGV now_ms           slot time of this renewal
-- RETURNS the new beat; 0 when another beat leads, or when the server has forgotten renewals
if not leads(KEYS[1], ARGV[1], ARGV[2]) then return 0 end
local beat = tonumber(redis.call('HGET', KEYS[1], 'beat') or '0') or 0
if beat < tonumber(ARGV[3]) then return 0 end
redis.call('HSET', KEYS[1], 'beat', beat + 1)
redis.call('HSET', KEYS[2], 'last_tick', ARGV[4])
return beat + 1
