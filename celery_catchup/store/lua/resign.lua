-- Give up the lead, so that a standby need not wait for the lease to run out.
--
-- KEYS leader  hash  owner, epoch
-- ARGV owner, epoch
-- RETURNS 1, or 0 when somebody else leads already
if not leads() then return false end
redis.call('DEL', keys.leader)
return 1
