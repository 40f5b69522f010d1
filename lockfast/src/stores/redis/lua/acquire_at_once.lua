-- acquire: joins the line of each name, or says where the claim stands and renews it.
--
-- KEYS: the counter of tickets; then the names wanted.
-- ARGV: as named below; then what is wanted of the names. `face` is what follows the number in the value of a holder.
local tickets = KEYS[1]
local kind, owner, home, ttl, block, floor, face = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]

-- What most locks need: one name, wanted alone, and nothing there. The line is looked at together with the key: a name
-- without a holder is not free when somebody stands in its line.
if string.sub(kind, 1, 1) == 'x' then
  local key, companion = KEYS[2], 'lockfast:{' .. home .. '}:'
  local there = redis.call('EXISTS', key, companion .. 'line:' .. key, companion .. 'claim:' .. owner, 'lockfast:watched')
  if there == 0 then
    local first = redis.call('INCRBY', tickets, block) - block + 1
    -- A counter below a million was lost, and has to be seeded first.
    if first > tonumber(floor) and first > 1000000 then
      -- Redis writes large numbers faster than Lua, and exactly.
      local number = block == '1' and redis.call('GET', tickets) or string.format('%.0f', first)
      redis.call('SET', key, 'lockfast1 x ' .. owner .. ' - ' .. number .. face, 'PX', ttl)
      return 'held ' .. number .. ' ' .. block
    end
  end
end
local client, now, note = string.match(face, '^ %d+ (%x+) %w+ (%d+) %d+ (.*)$')
