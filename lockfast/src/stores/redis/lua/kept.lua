-- What is kept, and how it reads.
--
-- For a name N with the tag T:
--   N                       taken: 'lockfast1 x ..' the exclusive holder, whose only trace this is (but for a claim on several
--                           names); 'lockfast1 s' readers; 'lockfast1 d ..' sealed; anything else is another program's lock
--   lockfast:{T}:line:N     a sorted set of seats: those who wait, and readers and permits that hold. Absent when empty
--   lockfast:{T}:claim:O    the record of the claim O, which lives as long as its lease: text like that at the key, or packed if
--                           it wants more; or 'gone WHY', a mark that keeps the id out. A seat without a record is dead
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

-- A claim that wants one name alone, as text: at its key while it holds, in its record while it waits. The same but for the
-- flags and since when, so that who waits can be handed the key by moving its record there. All that is written of a claim is
-- kept as text: numbers are read where they are compared.
function rule.value_of(claim)
  local flags = (claim.lingers and 'l' or '') .. (claim.broken and 'b' or '') .. (claim.detached and 'd' or '')
  flags = flags .. (rule.is_alone(claim) and '' or 'm') .. (claim.quiet and not claim.held and 'q' or '')
  flags = flags == '' and '-' or flags
  return 'lockfast1 x ' .. claim.owner .. ' ' .. claim.client .. ' ' .. claim.home .. ' ' .. flags .. ' ' .. claim.since
    .. ' ' .. claim.first .. ' ' .. claim.count .. ' ' .. claim.ttl .. ' ' .. claim.note
end

-- The claim behind such a text, which stands at the key of `want` or in a record.
function rule.read_value(value, want)
  local owner, client, home, flags, since, first, count, ttl, note =
    string.match(value, '^lockfast1 x (%x+) (%x+) (%w+) (%S+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  if not owner then
    error('LOCKFAST-NEWER')
  end
  local has = function(flag)
    return string.find(flags, flag, 1, true) and true
  end
  return {
    owner = owner, client = client, home = home, since = since, first = first, count = count, ttl = ttl, note = note,
    held = true, wants = {{key = want.key, tag = want.tag, weight = rule.ALL_WORD, capacity = rule.ALL_WORD}},
    lingers = has('l'), broken = has('b'), detached = has('d'), several = has('m'), quiet = has('q'),
  }
end

function rule.has_ticket(claim, ticket)
  local first = tonumber(claim.first)
  return ticket >= first and ticket < first + tonumber(claim.count)
end

function rule.is_of(value, claim)
  return string.sub(value, 13, 12 + #claim.owner) == claim.owner
end

-- The living claim of an owner who wants `want`, perhaps among others; or nil and why it is not in line. Its record may have been
-- read just now, together with others.
function rule.load(claim, want, record)
  if record == nil then
    record = redis.call('GET', rule.record_of(claim))
  end
  if not record then
    return nil, 'unknown'
  end
  if string.sub(record, 1, 5) == 'gone ' then
    return nil, string.sub(record, 6)
  end
  if string.sub(record, 1, 10) == 'lockfast1 ' then
    local waiting = rule.read_value(record, want)
    waiting.held = false
    return waiting
  end
  local is_read, living = pcall(cmsgpack.unpack, record)
  if not is_read or type(living) ~= 'table' or living.v ~= 1 then
    error('LOCKFAST-NEWER')
  end
  return living
end

-- The same for a claim whose only trace may be the value at its key.
function rule.find(claim)
  local want = claim.wants[1]
  if rule.is_alone(claim) then
    local kind, value = rule.taken_by(want.key)
    if kind == 'x' and rule.is_of(value, claim) then
      return rule.read_value(value, want)
    end
  end
  return rule.load(claim, want)
end

function rule.save(claim, lease)
  claim.v = 1
  local record = rule.is_alone(claim) and rule.value_of(claim) or cmsgpack.pack(claim)
  redis.call('SET', rule.record_of(claim), record, 'PX', lease)
end
