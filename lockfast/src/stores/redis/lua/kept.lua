-- What is kept, and how it reads.
--
-- For a name N with the tag T:
--   N                       taken: 'lockfast1 x ..' the exclusive holder, whose only trace this is (but for a claim on several
--                           names); 'lockfast1 s' readers; 'lockfast1 d ..' sealed; anything else is another program's lock
--   lockfast:{T}:line:N     a sorted set of seats: those who wait, and readers and permits that hold. Absent when empty
--   lockfast:{T}:claim:O    the record of the claim O, which lives as long as its lease; or 'gone WHY', a mark that keeps the
--                           id out. A seat without a record is dead
-- A tag makes the keys of one name fall into one slot.

-- All functions are in one table: a script pays at every call for each local that a function of its uses.
local rule = {ALL = 1048576, ALL_WORD = '1048576', seen = {}}

function rule.line_of(want)
  return 'lockfast:{' .. want.tag .. '}:line:' .. want.key
end

function rule.record_of(claim)
  return 'lockfast:{' .. claim.home .. '}:claim:' .. claim.owner
end

function rule.seat_of(claim, want)
  return claim.owner .. ' ' .. claim.client .. ' ' .. claim.home .. ' ' .. want.weight .. ' ' .. want.capacity
end

function rule.read_seat(seat)
  local owner, client, home, weight, capacity = string.match(seat, '^(%x+) (%x+) (%w+) (%d+) (%d+)$')
  return {owner = owner, client = client, home = home}, tonumber(weight), tonumber(capacity)
end

-- What one claim wants, from the words about it: 'x' alone for one name that is wanted alone, otherwise how many names, and
-- for each its tag, weight and capacity. Also where the words go on, and how many keys were used.
function rule.read_wants(claim, at, used)
  if ARGV[at] == 'x' then
    claim.wants = {{key = KEYS[used + 1], tag = claim.home, weight = rule.ALL_WORD, capacity = rule.ALL_WORD}}
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

function rule.is_exclusive(want)
  return want.weight == rule.ALL_WORD and want.capacity == rule.ALL_WORD
end

function rule.is_reader(want)
  return want.capacity == rule.ALL_WORD and want.weight ~= rule.ALL_WORD
end

-- A claim whose only trace, while it holds, is the value at its key.
function rule.is_alone(claim)
  return #claim.wants == 1 and rule.is_exclusive(claim.wants[1])
end

-- What stands at plain keys is kept in `seen`, as far as it was looked at.
function rule.look_at(key)
  local value = redis.pcall('GET', key)
  if not value then
    return {}
  end
  if type(value) == 'table' then
    if string.find(value.err, 'WRONGTYPE', 1, true) then
      return {kind = 'odd'}
    end
    error(value.err)
  end
  if string.sub(value, 1, 10) == 'lockfast1 ' then
    return {kind = string.sub(value, 11, 11), value = value}
  end
  return {kind = string.find(value, '^lockfast%d+ ') and 'newer' or 'foreign'}
end

-- What stands at a plain key: nil; 'x', 's' or 'd' as above, and the value; 'foreign', another program's lock; 'newer', that
-- of a newer version; or 'odd', which is no string at all. The last three keep others out all the same.
function rule.taken_by(key)
  rule.seen[key] = rule.seen[key] or rule.look_at(key)
  return rule.seen[key].kind, rule.seen[key].value
end

function rule.put_at(key, value, lease)
  redis.call('SET', key, value, 'PX', lease)
  rule.seen[key] = {kind = string.sub(value, 11, 11), value = value}
end

function rule.clear_at(key)
  redis.call('DEL', key)
  rule.seen[key] = {}
end

-- A whole number as text. In two parts: numbers of nine digits are written fast, and exactly, by every build of Lua; as it
-- writes large ones by itself, the last digits would be lost.
function rule.digits(number)
  if number < 1000000000 then
    return string.format('%d', number)
  end
  local high = math.floor(number / 1000000000)
  return string.format('%d%09d', high, number - high * 1000000000)
end

-- All that is written of a claim is kept as text: numbers are read where they are compared.
function rule.value_of(claim)
  local flags = (claim.lingers and 'l' or '') .. (claim.broken and 'b' or '') .. (claim.detached and 'd' or '')
  flags = flags .. (rule.is_alone(claim) and '' or 'm')
  flags = flags == '' and '-' or flags
  return 'lockfast1 x ' .. claim.owner .. ' ' .. flags .. ' ' .. claim.first .. ' ' .. claim.count .. ' ' .. claim.client
    .. ' ' .. claim.home .. ' ' .. claim.since .. ' ' .. claim.ttl .. ' ' .. claim.note
end

-- The claim behind the value of an exclusive holder.
function rule.read_value(value, want)
  local owner, flags, first, count, client, home, since, ttl, note =
    string.match(value, '^lockfast1 x (%x+) (%S+) (%d+) (%d+) (%x+) (%w+) (%d+) (%d+) (.*)$')
  if not owner then
    error('LOCKFAST-NEWER')
  end
  local has = function(flag)
    return string.find(flags, flag, 1, true) and true
  end
  return {
    owner = owner, first = first, count = count, client = client, home = home, since = since, ttl = ttl, note = note,
    held = true, wants = {want}, lingers = has('l'), broken = has('b'), detached = has('d'), several = has('m'),
  }
end

function rule.has_ticket(claim, ticket)
  local first = tonumber(claim.first)
  return ticket >= first and ticket < first + tonumber(claim.count)
end

function rule.is_of(value, claim)
  return string.sub(value, 13, 12 + #claim.owner) == claim.owner
end

-- The living claim of an owner; or nil and why it is not in line.
function rule.load(claim)
  local packed = redis.call('GET', rule.record_of(claim))
  if not packed then
    return nil, 'unknown'
  end
  if string.sub(packed, 1, 5) == 'gone ' then
    return nil, string.sub(packed, 6)
  end
  local living = cmsgpack.unpack(packed)
  if living.v ~= 1 then
    error('LOCKFAST-NEWER')
  end
  return living
end

-- The same for a claim whose only trace may be the value at its key.
function rule.find(claim)
  if rule.is_alone(claim) then
    local kind, value = rule.taken_by(claim.wants[1].key)
    if kind == 'x' and rule.is_of(value, claim) then
      return rule.read_value(value, claim.wants[1])
    end
  end
  return rule.load(claim)
end

function rule.save(claim, lease)
  claim.v = 1
  redis.call('SET', rule.record_of(claim), cmsgpack.pack(claim), 'PX', lease)
end
