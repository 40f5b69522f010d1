-- list_clients: the counters of all clients, and the clients that have a listing.
--
-- KEYS  none
-- ARGV  1 how many clients are wanted
--       2 only clients whose listing ends at this time or later, in milliseconds; now if absent
-- Reply {{acquired, released, contended, lost}, {client, end of its listing, client, end, ..}}, the earliest end first
local limit, from = ARGV[1], ARGV[2]
local clients = {}
if limit ~= '0' then
  from = from or string.format('%.0f', listing.clock())
  clients = redis.call('ZRANGEBYSCORE', 'lockfast:listings', from, '+inf', 'WITHSCORES', 'LIMIT', '0', limit)
  listing.unlist_ended()
end
local counters = redis.call('HMGET', 'lockfast:fleet', 'acquired', 'released', 'contended', 'lost')
for index = 1, 4 do
  counters[index] = counters[index] or '0'
end
return {counters, clients}
