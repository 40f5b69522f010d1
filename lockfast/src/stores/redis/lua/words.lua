-- Reading what a claim wants from the words about it: 'x' for one name that is wanted alone, otherwise how many names, and for
-- each its tag, weight and capacity. Says where the words go on, and how many keys were used.
local function read_wants(claim, at, used)
  if ARGV[at] == 'x' then
    claim.wants = {{key = KEYS[used + 1], tag = claim.home, weight = '1048576', capacity = '1048576'}}
    return at + 1, used + 1
  end
  local count = tonumber(ARGV[at])
  claim.wants = {}
  at = at + 1
  for index = 1, count do
    claim.wants[index] = {key = KEYS[used + index], tag = ARGV[at], weight = ARGV[at + 1], capacity = ARGV[at + 2]}
    at = at + 3
  end
  return at, used + count
end
