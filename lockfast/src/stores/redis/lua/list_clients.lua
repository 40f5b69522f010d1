-- list_clients: the counters of all clients; and which clients have a listing, with the moment when it ends, in the order of these.
--
-- KEYS: none. ARGV: how many clients are wanted; from which moment on, if not from now.
local most, from = ARGV[1], ARGV[2]
local clients = {}
if most ~= '0' then
  from = from or string.format('%.0f', listing.clock())
  clients = redis.call('ZRANGEBYSCORE', 'lockfast:listings', from, '+inf', 'WITHSCORES', 'LIMIT', '0', most)
  listing.unlist_ended()
end
local fleet = redis.call('HMGET', 'lockfast:fleet', 'acquired', 'released', 'contended', 'lost')
for index = 1, 4 do
  fleet[index] = fleet[index] or '0'
end
return {fleet, clients}
