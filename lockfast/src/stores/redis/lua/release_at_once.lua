-- release: ends claims, in order, and hands on what they held.
--
-- KEYS: the counter of tickets; then the names of all claims, one claim after the other.
-- ARGV: now; then for each claim how it leaves, its owner, client and home, three more words that depend on how, and how many
-- names; then for each name its tag, and the weight and capacity it had.
local tickets, now = KEYS[1], ARGV[1]

-- What most locks need: one claim on one name, held alone, with nobody waiting.
if ARGV[2] == 'done' and #KEYS == 2 and ARGV[11] == '1048576' and ARGV[12] == ARGV[11] then
  local key = KEYS[2]
  local value = redis.pcall('GET', key)
  local own = 'lockfast1 x ' .. ARGV[3] .. ' '
  local is_own = type(value) == 'string' and string.sub(value, 1, #own) == own
  if is_own and string.find(value, '^%d+ %d+ %x+ %w+ %- ', #own + 1) then
    if redis.call('EXISTS', 'lockfast:{' .. ARGV[10] .. '}:line:' .. key, 'lockfast:watched') == 0 then
      redis.call('DEL', key)
      return {'gone left'}
    end
  end
end
