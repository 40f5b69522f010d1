-- release: ends claims, in order, and hands on what they held.
--
-- KEYS: the names of all claims, one claim after the other.
-- ARGV: now; then for each claim how it leaves, its owner, client and home, what it wanted, and what else belongs to how.
local now, heard, leavings = ARGV[1], nil, {}
do
  -- How many words belong to each way of leaving.
  local more = {done = 0, unknown = 1, linger = 1, seal = 2, unless_alone = 3, ['break'] = 2}
  local at, used = 2, 0
  while at <= #ARGV do
    local how, claim = ARGV[at], {owner = ARGV[at + 1], client = ARGV[at + 2], home = ARGV[at + 3]}
    at, used = read_wants(claim, at + 4, used)
    leavings[#leavings + 1] = {how, claim, ARGV[at], ARGV[at + 1], ARGV[at + 2]}
    at = at + more[how]
  end
end
