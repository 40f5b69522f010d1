-- list: names from the listings of all clients; and the counters of all.
--
-- KEYS: none. ARGV: what they begin with; from where on; how many of each client.
local beginning, from, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local clients = redis.call('ZRANGEBYSCORE', 'lockfast:listings', string.format('%.0f', now), '+inf')
clients[#clients + 1] = 'detached'

local names = {}
for _, client in ipairs(clients) do
  local start, found, last = from, 0, nil
  while limit > 0 and found <= limit do
    local entries = redis.call('ZRANGEBYLEX', 'lockfast:listing:' .. client, start, '+', 'LIMIT', 0, limit + 1)
    for _, entry in ipairs(entries) do
      local name = string.sub(entry, 1, -34)
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
