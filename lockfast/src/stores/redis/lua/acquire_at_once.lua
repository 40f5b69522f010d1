-- acquire: joins the line of each name, or says where the claim stands and renews it.
--
-- KEYS: the counter of tickets; then the names wanted.
-- ARGV: as named below; then what is wanted of the names. `face` is what follows the number in the value of a holder.
local tickets = KEYS[1]
local kind, owner, home, ttl, block, floor, face = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local client, now, note

-- What most locks need, before the rule is even read: one name, wanted alone.
if string.sub(kind, 1, 1) == 'x' then
  local key, companion = KEYS[2], 'lockfast:{' .. home .. '}:'
  local line, record = companion .. 'line:' .. key, companion .. 'claim:' .. owner
  local is_free, is_waiting = false, false
  -- The line is looked at together with the key: a name without a holder is not free when somebody stands in its line.
  if redis.call('EXISTS', key, line, record, 'lockfast:watched') == 0 then
    is_free = true
  elseif kind == 'x' and redis.call('EXISTS', record, 'lockfast:watched') == 0 then
    -- When another claim holds it alone, nothing can be handed on, and whoever comes stands last.
    local value = redis.pcall('GET', key)
    is_waiting = type(value) == 'string' and string.sub(value, 1, 12) == 'lockfast1 x ' and string.sub(value, 13, 44) ~= owner
  end
  local first = (is_free or is_waiting) and redis.call('INCRBY', tickets, block) - block + 1
  -- A counter below a million was lost, and has to be seeded first.
  if first and first > tonumber(floor) and first > 1000000 then
    -- Redis writes large numbers faster than Lua, and exactly.
    local number = block == '1' and redis.call('GET', tickets) or string.format('%.0f', first)
    if is_free then
      redis.call('SET', key, 'lockfast1 x ' .. owner .. ' - ' .. number .. face, 'PX', ttl)
      return 'held ' .. number .. ' ' .. block
    end
    client, now, note = string.match(face, '^ %d+ (%x+) %w+ (%d+) %d+ (.*)$')
    redis.call('ZADD', line, number, owner .. ' ' .. client .. ' ' .. home .. ' 1048576 1048576')
    redis.call('SET', record, cmsgpack.pack({
      v = 1, owner = owner, client = client, home = home, first = number, count = block, since = now, ttl = ttl, note = note,
      held = false, wants = {{key = key, tag = home, weight = '1048576', capacity = '1048576'}},
    }), 'PX', ttl)
    if redis.call('PTTL', line) < ttl + 5000 then
      redis.call('PEXPIRE', line, ttl + 10000)
    end
    -- As `rule.waits` does: the leases of who holds, of who waits first, and of the one just ahead.
    local rank, recheck = redis.call('ZCARD', line) - 1, redis.call('PTTL', key)
    for _, place in ipairs({rank > 0 and 0, rank > 1 and rank - 1}) do
      local ahead, at = string.match(place and redis.call('ZRANGE', line, place, place)[1] or '', '^(%x+) %x+ (%w+)')
      recheck = math.max(recheck, ahead and redis.call('PTTL', 'lockfast:{' .. at .. '}:claim:' .. ahead) or 0)
    end
    return string.format('waiting %s %d %d', number, recheck, rank + 1)
  end
end
client, now, note = string.match(face, '^ %d+ (%x+) %w+ (%d+) %d+ (.*)$')
