-- list_names: for each of some clients, whether its listing goes on, and the next names in it, each once.
--
-- KEYS: none. ARGV: what names begin with; how many entries of each listing are read; for each client its number, and the name
-- after which its names are wanted, or nothing.
local beginning, most = ARGV[1], ARGV[2]
local call, sub, name_of, length = redis.call, string.sub, listing.name_of, #beginning
local answers, after, from = {}, nil, nil
for at = 3, #ARGV, 2 do
  local last
  -- At first it is the same name for all.
  if ARGV[at + 1] ~= after then
    after = ARGV[at + 1]
    -- Owners are written with digits up to f.
    from = after == '' and '[' .. listing.escaped(beginning) or '(' .. listing.entry_of(after, 'g')
  end
  local entries = call('ZRANGEBYLEX', 'lockfast:listing:' .. ARGV[at], from, '+', 'LIMIT', '0', most)
  local count = #entries
  local answer = {count == tonumber(most) and '1' or '0'}
  -- Names that do not begin so come last.
  while count > 0 and sub(name_of(entries[count]), 1, length) ~= beginning do
    answer[1], count = '0', count - 1
  end
  for index = 1, count do
    local name = name_of(entries[index])
    -- A name is listed once for each claim.
    if name ~= last then
      answer[#answer + 1] = name
      last = name
    end
  end
  answers[#answers + 1] = answer
end
return answers
