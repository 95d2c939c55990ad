-- Remove runs from the outbox whose messages the broker has confirmed. The lease of each begins now. A run that is to
-- be sent again since then stays.
--
-- A run that was claimed or retried before its confirmation arrived keeps its lease. The expiry of its message is
-- recorded anyway: a retry of its task has the same expiry.
--
-- KEYS ledger     hash  run id -> run as JSON
-- KEYS leases     zset  active runs by lease expiry (ms)
-- KEYS outbox     zset  runs to publish
-- ARGV now_ms           0 for the server's clock
-- ARGV took_ms          how long ago the first of these messages may have been published
-- ARGV ...              run id, number of the sending, countdown (ms) and time to live (ms) of the message, 0 for none; and so on
-- RETURNS the number of runs that were in the outbox
local now, took, count = server_now(args.now_ms), tonumber(args.took_ms), 0
took = took > 1000 and took or nil
local ids, gone, rows, looks = {}, {}, {}, {}
for i = first_arg, #ARGV, 4 do ids[#ids + 1] = ARGV[i] end
local stored = fields_of(keys.ledger, ids)

-- Most runs have not changed since their first sending: what is new is appended to the record, which takes a fifth of
-- the time to decode and encode it. Quotes inside a text of JSON are escaped, so that these can only be fields.
local function is_unchanged(text)
  return text and string.sub(text, -1) == '}' and string.find(text, '"state":"queued","attempt":1,"sends":1,', 1, true)
    and not string.find(text, '"sent":', 1, true) and not string.find(text, '"expires":', 1, true)
end

for i, id in ipairs(ids) do
  local place = first_arg + 4 * i - 3
  local sends, countdown, expires = tonumber(ARGV[place]), tonumber(ARGV[place + 1]), tonumber(ARGV[place + 2])
  local again = false
  if sends == 1 and is_unchanged(stored[i]) then
    local sent = now + countdown
    local more = string.format(',"sent":%d', sent)
    if took then more = more .. string.format(',"took":%d', took) end
    if countdown > 0 then more = more .. string.format(',"countdown":%d', countdown) end
    if expires > 0 then more = more .. string.format(',"expires":%d', now + expires) end
    rows[#rows + 1], rows[#rows + 2] = id, string.sub(stored[i], 1, -2) .. more .. '}'
    looks[#looks + 1] = look_at(sent, 1, expires > 0 and now + expires or nil)
    looks[#looks + 1] = id
  else
    local run = read_run(stored[i])
    local open = run and (run.state == 'queued' or run.state == 'running')
    again = open and run.sends ~= sends
    open = open and not again
    if open and not run.sent then
      run.took = took
      record_sent(id, run, now, countdown, expires > 0 and expires or nil)
    elseif open and expires > 0 and not run.expires then
      run.expires = now + expires
      store_run(id, run)
    end
  end
  if not again then gone[#gone + 1] = id end
end
for first = 1, #gone, MANY do
  count = count + redis.call('ZREM', keys.outbox, unpack(gone, first, math.min(first + MANY - 1, #gone)))
end
write('HSET', keys.ledger, rows)
write('ZADD', keys.leases, looks)
return count
