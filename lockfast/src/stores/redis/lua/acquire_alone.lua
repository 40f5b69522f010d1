-- acquire_alone: joins the line of one name that is wanted alone, or says where the claim stands and renews it.
--
-- KEYS: the name, its line, the claim's record.
-- ARGV: what its value begins with, up to its number, and how it goes on; its lease; the least number; and, where it is not as
-- for most, what kind it is and how many numbers it wants.
local key, line, record = KEYS[1], KEYS[2], KEYS[3]
local begins, ends, ttl, floor, kind, block = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

-- What most locks need, before the rule is even read: functions that nobody calls cost time too, and so does each word. Numbers
-- are passed as texts: writing one out costs as much as a command.
if not kind then
  local call, sub = redis.call, string.sub
  -- The line is looked at together with the key: a name without a holder is not free when somebody stands in its line. And the
  -- record, which may say that this claim has left before it came.
  local is_free, waits = call('EXISTS', key, line, record, 'lockfast:watched') == 0, false
  if not is_free then
    -- When another claim holds it alone, nothing can be handed on, and whoever comes stands last.
    local value, known, watched = unpack(call('MGET', key, record, 'lockfast:watched'))
    waits = value and not known and not watched
      and sub(value, 1, 12) == 'lockfast1 x ' and sub(value, 13, 44) ~= sub(begins, 13, 44)
  end
  if is_free or waits then
    local number = call('INCRBY', 'lockfast:tickets', '1')
    -- Redis writes large numbers faster than Lua, and exactly.
    local first = call('GET', 'lockfast:tickets')
    -- A counter below a million was lost, and has to be seeded first. The least number is compared as a text, since reading it
    -- costs more.
    if number > 1000000 and (#first > #floor or #first == #floor and first > floor) then
      if not waits then
        call('PSETEX', key, ttl, begins .. first .. ends)
        return first
      end
      call('ZADD', line, first, sub(begins, 13, 65) .. ' 1048576 1048576')
      call('PSETEX', record, ttl, begins .. first .. ends)
      local position = call('ZCARD', line)
      if position == 1 or call('PTTL', line) < ttl + 5000 then
        call('PEXPIRE', line, ttl + 10000)
      end
      -- As `rule.waits` does: the leases of who holds, of who waits first, and of the one just ahead. The last two are left out
      -- where it makes no difference: before the first ends, this claim is renewed, and hears of all three.
      local recheck = call('PTTL', key)
      if position > 1 and recheck < ttl / 2 then
        for _, place in ipairs({0, position - 2}) do
          local ahead = call('ZRANGE', line, place, place)[1]
          local lease = call('PTTL', 'lockfast:{' .. sub(ahead, 51, 53) .. '}:claim:' .. sub(ahead, 1, 32))
          recheck = math.max(recheck, lease)
        end
      end
      return {first, recheck, position}
    end
  end
end

kind, block = kind or '', block or '1'
local now = string.sub(begins, 69, 81)
local asked = {
  owner = string.sub(begins, 13, 44), client = string.sub(begins, 46, 61), home = string.sub(begins, 63, 65),
  since = now, ttl = ttl, count = block, note = string.match(ends, '^ %d+ %d+ (.*)$'),
}
asked.wants = {{key = key, tag = asked.home, weight = '1048576', capacity = '1048576'}}
