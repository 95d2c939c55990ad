-- Queue notifications, and record in the same step what was reported.
--
-- A notification that waits already is left alone. Beyond the limit, one digest for each receiver stands for all further
-- ones: a receiver that is away for long must not fill the server, nor be flooded when it is back.
--
-- KEYS leader       hash  owner, epoch
-- KEYS notices      hash  receiver and notification -> notification, attempts and time of queueing as JSON
-- KEYS notices_due  zset  notifications by when to send them (ms, server's clock)
-- KEYS told         hash  kind and entry -> what was reported, as JSON
-- ARGV owner, epoch
-- ARGV notices            JSON: list of {name, notification as JSON}
-- ARGV told               JSON: list of {field, text, or false to remove it}
-- ARGV most               notifications to keep
-- ARGV command            what a digest suggests
-- RETURNS the number of notifications that went into digests, or false if another beat leads
if not leads() then return false end
local now, room, digested = server_now('0'), tonumber(args.most) - redis.call('ZCARD', keys.notices_due), 0
local MOST_NAMED, digests = 20, {}

-- Find the digest that waits for a receiver, or begin one. One that was tried gets a new id when it changes, because
-- the receiver may have it.
local function digest_of(receiver, notice)
  local name = receiver .. ':digest'
  if not digests[name] then
    local record = read_json(redis.call('HGET', keys.notices, name))
    local known = type(record.notice) == 'string' and read_json(record.notice) or {}
    local found = type(known.details) == 'table' and known or {
      version = notice.version, id = notice.id, kind = 'digest', namespace = notice.namespace, entry = cjson.null,
      details = { notifications = 0, kinds = {}, entries = {}, since = notice.time }, command = args.command,
    }
    if (tonumber(record.attempts) or 0) > 0 then found.id = notice.id end
    digests[name] = found
  end
  return digests[name]
end

local function add_to_digest(name, text)
  local notice = cjson.decode(text)
  local digest = digest_of(string.match(name, '^[^:]*'), notice)
  local details, listed = digest.details, {}
  digest.time, details.notifications = notice.time, details.notifications + 1
  details.kinds[notice.kind] = (details.kinds[notice.kind] or 0) + 1
  for _, entry in ipairs(details.entries) do listed[entry] = true end
  local entry = notice.entry
  if type(entry) == 'string' and not listed[entry] and #details.entries < MOST_NAMED then
    details.entries[#details.entries + 1] = entry
  end
end

local function store_digest(name, digest)
  local words = {}
  for kind, count in pairs(digest.details.kinds) do words[#words + 1] = string.format('%d %s', count, kind) end
  table.sort(words)
  local many = digest.details.notifications
  digest.summary = string.format('%d further notification%s since %s: %s.', many, many == 1 and '' or 's',
    digest.details.since, table.concat(words, ', '))
  local text = string.gsub(cjson.encode(digest), '"entries":{}', '"entries":[]')
  redis.call('HSET', keys.notices, name, cjson.encode({ notice = text, queued = now, attempts = 0 }))
  redis.call('ZADD', keys.notices_due, now, name)
end

for _, one in ipairs(cjson.decode(args.notices)) do
  if redis.call('HEXISTS', keys.notices, one[1]) == 0 then
    if room > 0 then
      room = room - 1
      redis.call('HSET', keys.notices, one[1], cjson.encode({ notice = one[2], queued = now, attempts = 0 }))
      redis.call('ZADD', keys.notices_due, now, one[1])
    else
      digested = digested + 1
      add_to_digest(one[1], one[2])
    end
  end
end
for name, digest in pairs(digests) do store_digest(name, digest) end
for _, one in ipairs(cjson.decode(args.told)) do
  if one[2] then
    redis.call('HSET', keys.told, one[1], one[2])
  else
    redis.call('HDEL', keys.told, one[1])
  end
end
return digested
