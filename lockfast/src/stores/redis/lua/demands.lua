-- Decodes the demands of a claim: 'x' for one name, exclusively; otherwise the number of names, and for each its tag, weight and
-- capacity. `at` is the index of the first argument to decode, and `used` the number of keys that belong to earlier claims. Returns
-- the two for the next claim.
local function decode_demands(claim, at, used)
  if ARGV[at] == 'x' then
    claim.wants = {{key = KEYS[used + 1], tag = claim.home, weight = '@all@', capacity = '@all@'}}
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
