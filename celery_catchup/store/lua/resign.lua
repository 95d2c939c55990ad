-- Give up the lead, so that a standby need not wait for the lease to run out.
--
-- KEYS leader  hash  owner, epoch
-- ARGV owner, epoch
-- RETURNS 1, or 0 when somebody else leads already
if not leads(KEYS[1], ARGV[1], ARGV[2]) then return 0 end
redis.call('DEL', KEYS[1])
return 1
