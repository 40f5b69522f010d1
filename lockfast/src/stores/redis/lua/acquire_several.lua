-- acquire: a claim joins the queue of each of its names. A claim that has joined before is renewed instead.
--
-- KEYS  the names
-- ARGV  1 flags: 'r' refuse instead of waiting, 'q' the client has no subscription
--       2 the lease, in milliseconds
--       3 how many tickets the claim reserves
--       4 the floor: the first ticket has to be above it
--       5 now, in milliseconds; shown to people, never compared
--       6 owner, 7 client, 8 home, 9 note of the claim
--       10.. the demands of the claim, see demands.lua
-- Reply see acquire.lua
local flags, ttl, block, floor, now = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local claim = {
  owner = ARGV[6], client = ARGV[7], home = ARGV[8], note = ARGV[9], since = now, ttl = ttl, count = block,
}
decode_demands(claim, 10, 0)
