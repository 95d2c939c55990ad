-- Give up the lead, so that a standby need not wait for the lease to expire.
--
-- KEYS leader  hash  owner, epoch
-- ARGV owner, epoch
-- RETURNS 1, or false if another beat leads
if not leads() then return false end
redis.call('DEL', keys.leader)
return 1
