-- seed: after a restart or a failover, raises the counter of tickets to the server's clock, so that no ticket is drawn twice.
--
-- KEYS  1 the counter of tickets, 2 the identity of the server under which it was last used
-- ARGV  1 the identity of the server now
-- Reply the server's time, in milliseconds
local tickets, identity = KEYS[1], KEYS[2]
local time = redis.call('TIME')
if redis.call('GET', identity) ~= ARGV[1] then
  -- The first write is one that a full Redis allows: locks that are held there have to be released.
  redis.call('DEL', identity)
  local clock = time[1] * 1000000 + time[2]
  if clock > tonumber(redis.call('GET', tickets) or '0') then
    redis.call('SET', tickets, string.format('%.0f', clock))
  end
  redis.call('SET', identity, ARGV[1])
end
return string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
