-- seed: after the server began anew, or another one took over, tickets go on from its clock, so that none is given twice.
--
-- KEYS: the counter of tickets; the identity under which it was last used. ARGV: the server's identity now.
local tickets, identity = KEYS[1], KEYS[2]
local time = redis.call('TIME')
if redis.call('GET', identity) ~= ARGV[1] then
  -- Begins with what a full Redis allows: what is held there has to be given back.
  redis.call('DEL', identity)
  local clock = time[1] * 1000000 + time[2]
  if clock > tonumber(redis.call('GET', tickets) or '0') then
    redis.call('SET', tickets, string.format('%.0f', clock))
  end
  redis.call('SET', identity, ARGV[1])
end
return string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
