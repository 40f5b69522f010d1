-- acquire: joins the line of each name, or says where the claim stands and renews it.
--
-- KEYS: the counter of tickets; then the names wanted.
-- ARGV: as named below; then for each name its tag, and the weight and capacity wanted.
local tickets = KEYS[1]
local now, owner, client, home, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local block, floor, kind, note = ARGV[6], ARGV[7], ARGV[8], ARGV[9]

-- What most locks need: one name, wanted alone, and nothing there. The line is looked at together with the key: a name
-- without a holder is not free when somebody stands in its line.
if string.sub(kind, 1, 1) == 'x' then
  local key = KEYS[2]
  local companion = 'lockfast:{' .. ARGV[10] .. '}:'
  local there = redis.call('EXISTS', key, companion .. 'line:' .. key, companion .. 'claim:' .. owner, 'lockfast:watched')
  if there == 0 then
    local last = redis.call('INCRBY', tickets, block)
    local first = last - block + 1
    -- A counter below a million was lost, and has to be seeded first.
    if first > tonumber(floor) and first > 1000000 then
      local number = string.format('%.0f %s', first, block)
      local value = table.concat({'lockfast1 x', owner, number, client, home, '-', now, ttl, note}, ' ')
      redis.call('SET', key, value, 'PX', ttl)
      return 'held ' .. number
    end
  end
end
