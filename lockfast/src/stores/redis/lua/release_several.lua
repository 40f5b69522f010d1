-- release: claims leave, in order; their names are handed off.
--
-- KEYS  the names of all claims, one claim after the other
-- ARGV  1 now, in milliseconds, 13 digits; shown to people, never compared
--       2.. for each claim the way it leaves; its owner, client and home; its demands, see demands.lua; and the arguments of the
--       way, spans in milliseconds:
--         done
--         unknown       for how long a tombstone stays
--         linger        the span
--         seal          the value, for how long it stays
--         unless_alone  how many tickets, the floor, the lease
--         break         a ticket, and '1' for at once; owner and client are '-', the claim follows from the ticket
-- Reply for each claim 'gone WHY', 'held FIRST COUNT' (unless_alone), or 'failed MESSAGE'
local now, subscribed, leavings = ARGV[1], nil, {}
do
  local arguments = {done = 0, unknown = 1, linger = 1, seal = 2, unless_alone = 3, ['break'] = 2}
  local at, used = 2, 0
  while at <= #ARGV do
    local way, claim = ARGV[at], {owner = ARGV[at + 1], client = ARGV[at + 2], home = ARGV[at + 3]}
    at, used = decode_demands(claim, at + 4, used)
    leavings[#leavings + 1] = {way, claim, ARGV[at], ARGV[at + 1], ARGV[at + 2]}
    at = at + arguments[way]
  end
end
