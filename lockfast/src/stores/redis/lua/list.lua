-- list: names from the listings of all clients; and the counters of all.
--
-- KEYS: none. ARGV: what they begin with; how many of each client; the name after which they come, if not all are wanted.
local beginning, limit, after = ARGV[1], tonumber(ARGV[2]), ARGV[3]
-- Owners are written with digits up to f.
local from = after and '(' .. listing.entry_of(after, 'g') or '[' .. listing.escaped(beginning)
local clients = redis.call('ZRANGEBYSCORE', 'lockfast:listings', string.format('%.0f', listing.clock()), '+inf')
clients[#clients + 1] = 'detached'
listing.unlist_ended()

local names = {}
for _, client in ipairs(clients) do
  local start, found, last = from, 0, nil
  while limit > 0 and found <= limit do
    local entries = redis.call('ZRANGEBYLEX', 'lockfast:listing:' .. client, start, '+', 'LIMIT', 0, limit + 1)
    for _, entry in ipairs(entries) do
      local name = listing.name_of(entry)
      if string.sub(name, 1, #beginning) ~= beginning then
        found = limit + 1
        break
      end
      -- A name is listed once for each claim.
      if name ~= last then
        names[#names + 1] = name
        found, last = found + 1, name
      end
      start = '(' .. entry
    end
    if #entries <= limit then
      break
    end
  end
end
local fleet = redis.call('HMGET', 'lockfast:fleet', 'acquired', 'released', 'contended', 'lost')
for index = 1, 4 do
  fleet[index] = fleet[index] or '0'
end
return {fleet, names}
