-- list_clients: the counters of all clients, and the clients that have a listing.
--
-- KEYS  none
-- ARGV  1 how many clients are wanted
--       2 from which end of a listing on, in milliseconds; from now on if absent
-- Reply {{acquired, released, contended, lost}, {client, end of its listing, client, end, ..}}, in the order of these ends
local most, from = ARGV[1], ARGV[2]
local clients = {}
if most ~= '0' then
  from = from or string.format('%.0f', listing.clock())
  clients = redis.call('ZRANGEBYSCORE', 'lockfast:listings', from, '+inf', 'WITHSCORES', 'LIMIT', '0', most)
  listing.unlist_ended()
end
local counters = redis.call('HMGET', 'lockfast:fleet', 'acquired', 'released', 'contended', 'lost')
for index = 1, 4 do
  counters[index] = counters[index] or '0'
end
return {counters, clients}
