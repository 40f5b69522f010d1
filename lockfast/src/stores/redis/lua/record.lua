-- record: adds to the counters of all clients, and brings the listing of one client up to date.
--
-- KEYS  none
-- ARGV  1 the client
--       2 for how long its listing stays, in milliseconds
--       3 acquired, 4 released, 5 contended, 6 lost: added to the counters
--       7 how many claims have left
--       8.. the owner of each claim that has left; then for each new claim its owner, the number of its names, and the names
-- Reply the server's time, in milliseconds
local client, listing_ttl = ARGV[1], tonumber(ARGV[2])
local now = listing.clock()
local names_of_client, owners = 'lockfast:listing:' .. client, 'lockfast:owners:' .. client

for index, counter in ipairs({'acquired', 'released', 'contended', 'lost'}) do
  if ARGV[2 + index] ~= '0' then
    redis.call('HINCRBY', 'lockfast:fleet', counter, ARGV[2 + index])
  end
end

local left_count = tonumber(ARGV[7])
for index = 8, 7 + left_count do
  local names = redis.call('HGET', owners, ARGV[index])
  if names then
    for _, name in ipairs(cmsgpack.unpack(names)) do
      redis.call('ZREM', names_of_client, listing.member_of(name, ARGV[index]))
    end
    redis.call('HDEL', owners, ARGV[index])
  end
end
local at = 8 + left_count
while at <= #ARGV do
  local owner, count, names = ARGV[at], tonumber(ARGV[at + 1]), {}
  for index = 1, count do
    names[index] = ARGV[at + 1 + index]
    redis.call('ZADD', names_of_client, 0, listing.member_of(names[index], owner))
  end
  redis.call('HSET', owners, owner, cmsgpack.pack(names))
  at = at + 2 + count
end

redis.call('ZREMRANGEBYSCORE', 'lockfast:listings', '-inf', string.format('%.0f', now))
-- 0 if the client has no listing.
if redis.call('PEXPIRE', names_of_client, listing_ttl) == 1 then
  redis.call('PEXPIRE', owners, listing_ttl)
  redis.call('ZADD', 'lockfast:listings', string.format('%.0f', now + listing_ttl), client)
  if redis.call('PTTL', 'lockfast:listings') < listing_ttl then
    redis.call('PEXPIRE', 'lockfast:listings', listing_ttl)
  end
else
  redis.call('ZREM', 'lockfast:listings', client)
end
return string.format('%.0f', now)
