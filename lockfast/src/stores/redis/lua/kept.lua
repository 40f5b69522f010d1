-- What is kept, and how it reads.
--
-- For a name N with the tag T:
--   N                       taken: 'lockfast1 x ..' the exclusive holder, whose only trace this is (but for a claim on several
--                           names); 'lockfast1 s' readers; 'lockfast1 d ..' sealed; anything else is another program's lock
--   lockfast:{T}:line:N     a sorted set of seats: those who wait, and readers and permits that hold. Absent when empty
--   lockfast:{T}:claim:O    the record of the claim O, which lives as long as its lease; or 'gone WHY', a mark that keeps the
--                           id out. A seat without a record is dead
-- A tag makes the keys of one name fall into one slot.

local ALL = 1048576

local function line_of(want)
  return 'lockfast:{' .. want.tag .. '}:line:' .. want.key
end

local function record_of(claim)
  return 'lockfast:{' .. claim.home .. '}:claim:' .. claim.owner
end

local function seat_of(claim, want)
  return claim.owner .. ' ' .. claim.client .. ' ' .. claim.home .. ' ' .. want.weight .. ' ' .. want.capacity
end

local function read_seat(seat)
  local owner, client, home, weight, capacity = string.match(seat, '^(%x+) (%x+) (%w+) (%d+) (%d+)$')
  return {owner = owner, client = client, home = home}, tonumber(weight), tonumber(capacity)
end

-- What one claim wants, from the words about it: 'x' alone for one name that is wanted alone, otherwise how many names, and
-- for each its tag, weight and capacity. Also where the words go on, and how many keys were used.
local function read_wants(claim, at, used)
  if ARGV[at] == 'x' then
    claim.wants = {{key = KEYS[used + 1], tag = claim.home, weight = '1048576', capacity = '1048576'}}
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

local function is_exclusive(want)
  return tonumber(want.weight) == ALL and tonumber(want.capacity) == ALL
end

local function is_reader(want)
  return tonumber(want.capacity) == ALL and tonumber(want.weight) < ALL
end

-- A claim whose only trace, while it holds, is the value at its key.
local function is_alone(claim)
  return #claim.wants == 1 and is_exclusive(claim.wants[1])
end

-- What stands at plain keys, as far as it was looked at.
local seen = {}

local function look_at(key)
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
  if string.find(value, '^lockfast%d+ ') then
    error('LOCKFAST-NEWER')
  end
  return {kind = 'foreign', value = value}
end

-- What stands at a plain key: nil, 'x', 's', 'd', 'foreign', or 'odd' if it is no string at all; and the value.
local function taken_by(key)
  seen[key] = seen[key] or look_at(key)
  return seen[key].kind, seen[key].value
end

local function put_at(key, value, lease)
  redis.call('SET', key, value, 'PX', lease)
  seen[key] = nil
end

local function clear_at(key)
  redis.call('DEL', key)
  seen[key] = nil
end

-- The same for who has nothing to do with it: whatever is no lock of ours is as good as another program's.
local function kind_at(key)
  local done, kind, value = pcall(taken_by, key)
  if done then
    return kind, value
  end
  return 'foreign'
end

local function value_of(claim)
  local flags = (claim.lingers and 'l' or '') .. (claim.broken and 'b' or '') .. (claim.detached and 'd' or '')
  flags = flags .. (is_alone(claim) and '' or 'm')
  flags = flags == '' and '-' or flags
  local number = string.format('%.0f %.0f', claim.first, claim.count)
  local since, ttl = string.format('%.0f', claim.since), string.format('%.0f', claim.ttl)
  return table.concat({'lockfast1 x', claim.owner, flags, number, claim.client, claim.home, since, ttl, claim.note}, ' ')
end

-- The claim behind the value of an exclusive holder.
local function read_value(value, want)
  local owner, flags, first, count, client, home, since, ttl, note =
    string.match(value, '^lockfast1 x (%x+) (%S+) (%d+) (%d+) (%x+) (%w+) (%d+) (%d+) (.*)$')
  return {
    owner = owner, first = tonumber(first), count = tonumber(count), client = client, home = home, note = note,
    since = tonumber(since), ttl = tonumber(ttl), held = true, wants = {want},
    lingers = string.find(flags, 'l', 1, true) and true, broken = string.find(flags, 'b', 1, true) and true,
    detached = string.find(flags, 'd', 1, true) and true, several = string.find(flags, 'm', 1, true) and true,
  }
end

local function is_of(value, claim)
  return string.sub(value, 13, 12 + #claim.owner) == claim.owner
end

-- The living claim of an owner; or nil and why it is not in line.
local function load(claim)
  local packed = redis.call('GET', record_of(claim))
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

local function save(claim, lease)
  claim.v = 1
  redis.call('SET', record_of(claim), cmsgpack.pack(claim), 'PX', lease)
end
