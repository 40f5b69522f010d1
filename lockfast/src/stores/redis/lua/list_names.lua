-- list_names: the next names in the listings of some clients.
--
-- KEYS  none
-- ARGV  1 the prefix of the names
--       2 how many members of each listing are read
--       3.. for each client its id, and the last name read of its listing, or '' to begin at the first
-- Reply for each client {'1' if its listing goes on, otherwise '0'; the names, each once}
local prefix, limit = ARGV[1], ARGV[2]
local call, sub, name_of, length = redis.call, string.sub, listing.name_of, #prefix
local replies, after, from = {}, nil, nil
for at = 3, #ARGV, 2 do
  local last
  -- Computed once for consecutive clients with the same last name, as all have in the first call of a scan.
  if ARGV[at + 1] ~= after then
    after = ARGV[at + 1]
    -- Owners are hexadecimal: 'g' is behind all of them.
    from = after == '' and '[' .. listing.escaped(prefix) or '(' .. listing.member_of(after, 'g')
  end
  local members = call('ZRANGEBYLEX', 'lockfast:listing:' .. ARGV[at], from, '+', 'LIMIT', '0', limit)
  local count = #members
  local reply = {count == tonumber(limit) and '1' or '0'}
  -- Names with another prefix come last.
  while count > 0 and sub(name_of(members[count]), 1, length) ~= prefix do
    reply[1], count = '0', count - 1
  end
  for index = 1, count do
    local name = name_of(members[index])
    -- A name is listed once for each claim.
    if name ~= last then
      reply[#reply + 1] = name
      last = name
    end
  end
  replies[#replies + 1] = reply
end
return replies
