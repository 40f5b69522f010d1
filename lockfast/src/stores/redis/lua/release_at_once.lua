-- release: ends claims, in order, and hands on what they held.
--
-- KEYS: the counter of tickets; then the names of all claims, one claim after the other.
-- ARGV: now; then for each claim how it leaves, its owner, client and home, what it wanted, and what else belongs to how.
local tickets, now = KEYS[1], ARGV[1]

-- What most locks need: one claim on one name, held alone, with nobody waiting.
if #ARGV == 6 and ARGV[2] == 'done' and ARGV[6] == 'x' then
  local key, own = KEYS[2], 'lockfast1 x ' .. ARGV[3] .. ' - '
  local value = redis.pcall('GET', key)
  if type(value) == 'string' and string.sub(value, 1, #own) == own then
    if redis.call('EXISTS', 'lockfast:{' .. ARGV[5] .. '}:line:' .. key, 'lockfast:watched') == 0 then
      redis.call('DEL', key)
      return 'gone left'
    end
  end
end
