-- Claims as they are stored, and the values of plain keys. format.rs has the layout of a claim's text, and the value of each name
-- between at signs, which it inserts before the script is sent.
--
-- For a name N with the tag T, which makes the keys of one name fall into one slot:
--   N                       the exclusive holder's text, which is the holder's only trace unless it wants several names; the
--                           reader marker; a seal; or another program's lock
--   lockfast:{T}:line:N     the queue, a sorted set of entries by ticket: waiters, and readers and permits that hold. Absent if empty
--   lockfast:{T}:claim:O    the record of the claim O, which lives as long as its lease: the same text for a waiter that wants one
--                           name alone, packed for all others; or a tombstone. An entry without a record is dead

-- `want` is what a claim demands of one name: its key, tag, weight and capacity, both as text. `claim.wants` has all of them.
--
-- All functions are in one table: each local that a function uses costs time at every run of the script.
local rule = {ALL = @all@, ALL_TEXT = '@all@', cached = {}}

function rule.queue_of(want)
  return 'lockfast:{' .. want.tag .. '}:line:' .. want.key
end

function rule.record_of(claim)
  return 'lockfast:{' .. claim.home .. '}:claim:' .. claim.owner
end

function rule.entry_of(claim, want)
  return claim.owner .. ' ' .. claim.client .. ' ' .. claim.home .. ' ' .. want.weight .. ' ' .. want.capacity
end

function rule.decode_entry(entry)
  local owner, client, home, weight, capacity = string.match(entry, '^(%x+) (%x+) (%w+) (%d+) (%d+)$')
  return {owner = owner, client = client, home = home}, tonumber(weight), tonumber(capacity)
end

function rule.is_exclusive(want)
  return want.weight == rule.ALL_TEXT and want.capacity == rule.ALL_TEXT
end

function rule.is_reader(want)
  return want.capacity == rule.ALL_TEXT and want.weight ~= rule.ALL_TEXT
end

-- Whether the claim wants one name, exclusively. While such a claim holds, it is stored only as the text at the plain key.
function rule.is_single_exclusive(claim)
  return #claim.wants == 1 and rule.is_exclusive(claim.wants[1])
end

-- The kind and the value of a plain key, not cached; see `read_key`.
function rule.fetch_key(key)
  local value = redis.pcall('GET', key)
  if not value then
    return {}
  end
  if type(value) == 'table' then
    if string.find(value.err, 'WRONGTYPE', 1, true) then
      return {kind = 'wrong_type'}
    end
    error(value.err)
  end
  if string.sub(value, @value.version@) == '@version@' then
    return {kind = string.sub(value, @value.kind@), value = value}
  end
  return {kind = string.find(value, '^lockfast%d+ ') and 'newer' or 'foreign'}
end

-- The kind of the value of a plain key, and the value if it is ours. The kind is nil if the key does not exist; '@kind.claim@',
-- '@kind.readers@' or '@kind.seal@', see format.rs; 'foreign' for another program's lock; 'newer' for a value of a newer version
-- of lockfast; 'wrong_type' for a value that is no string. The last three keep claims out too. Each key is fetched once in a run:
-- every write to a plain key goes through `set_key` or `delete_key`, or clears the cached value.
function rule.read_key(key)
  rule.cached[key] = rule.cached[key] or rule.fetch_key(key)
  return rule.cached[key].kind, rule.cached[key].value
end

function rule.set_key(key, value, lease)
  redis.call('SET', key, value, 'PX', lease)
  rule.cached[key] = {kind = string.sub(value, @value.kind@), value = value}
end

function rule.delete_key(key)
  redis.call('DEL', key)
  rule.cached[key] = {}
end

-- A whole number as text. Every build of Lua writes nine digits exactly; of a larger number written at once, the last are lost.
function rule.digits(number)
  if number < 1000000000 then
    return string.format('%d', number)
  end
  local high = math.floor(number / 1000000000)
  return string.format('%d%09d', high, number - high * 1000000000)
end

-- The text of a claim, as in format.rs. Numbers of a claim stay text, and are parsed where they are compared.
function rule.encode(claim)
  local flags = (claim.lingers and 'l' or '') .. (claim.broken and 'b' or '') .. (claim.detached and 'd' or '')
  flags = flags .. (rule.is_single_exclusive(claim) and '' or 'm') .. (claim.quiet and not claim.held and 'q' or '')
  flags = flags == '' and '-' or flags
  return '@claim@' .. claim.owner .. ' ' .. claim.client .. ' ' .. claim.home .. ' ' .. flags .. ' ' .. claim.since
    .. ' ' .. claim.first .. ' ' .. claim.count .. ' ' .. claim.ttl .. ' ' .. claim.note
end

-- Decodes the text of a claim, which is the value of the plain key of `want`, or the claim's record.
function rule.decode(value, want)
  local owner, client, home, flags, since, first, count, ttl, note =
    string.match(value, '^@claim@(%x+) (%x+) (%w+) (%S+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  if not owner then
    error('LOCKFAST-NEWER')
  end
  local has = function(flag)
    return string.find(flags, flag, 1, true) and true
  end
  return {
    owner = owner, client = client, home = home, since = since, first = first, count = count, ttl = ttl, note = note,
    held = true, wants = {{key = want.key, tag = want.tag, weight = rule.ALL_TEXT, capacity = rule.ALL_TEXT}},
    lingers = has('l'), broken = has('b'), detached = has('d'), several = has('m'), quiet = has('q'),
  }
end

function rule.has_ticket(claim, ticket)
  local first = tonumber(claim.first)
  return ticket >= first and ticket < first + tonumber(claim.count)
end

function rule.is_text_of(value, claim)
  return string.sub(value, @value.owner@) == claim.owner
end

-- Loads a claim from its record: the claim, or nil and the reason: 'unknown', or the one of its tombstone. `record` is the record's
-- value if the caller has read it before, false if there is none.
function rule.load(claim, want, record)
  if record == nil then
    record = redis.call('GET', rule.record_of(claim))
  end
  if not record then
    return nil, 'unknown'
  end
  if string.sub(record, @tombstone.head@) == '@tombstone@' then
    return nil, string.sub(record, @tombstone.why@)
  end
  if string.sub(record, @value.version@) == '@version@' then
    local waiting = rule.decode(record, want)
    waiting.held = false
    return waiting
  end
  local is_read, living = pcall(cmsgpack.unpack, record)
  if not is_read or type(living) ~= 'table' or living.v ~= 1 then
    error('LOCKFAST-NEWER')
  end
  return living
end

-- As `load`, also for a claim that is stored only as the text at its plain key.
function rule.find(claim)
  local want = claim.wants[1]
  if rule.is_single_exclusive(claim) then
    local kind, value = rule.read_key(want.key)
    if kind == '@kind.claim@' and rule.is_text_of(value, claim) then
      return rule.decode(value, want)
    end
  end
  return rule.load(claim, want)
end

function rule.save(claim, lease)
  claim.v = 1
  local record = rule.is_single_exclusive(claim) and rule.encode(claim) or cmsgpack.pack(claim)
  redis.call('SET', rule.record_of(claim), record, 'PX', lease)
end
