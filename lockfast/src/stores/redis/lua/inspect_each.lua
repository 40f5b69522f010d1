-- The second half of the script inspect, by the rule. `now`, `max_entries`, `shown_before` and `last_shown` are as declared in
-- inspect.lua.

-- How many entries and names this run may still read.
local budget = @max_shown@

local function encode_entry(claim, weight, lease)
  local flags = (claim.held and 'h' or '') .. (claim.lingers and 'l' or '') .. (claim.broken and 'b' or '')
  return {
    claim.owner, claim.first, claim.count, tostring(weight), flags,
    rule.digits(math.max(0, tonumber(now) - tonumber(claim.since))), tostring(lease), claim.note,
  }
end

-- Adds the holder at the plain key, which has no entry in the queue. Returns how much longer the name is sealed, and the capacity.
local function inspect_key(want, entries)
  local kind, value = rule.read_key(want.key)
  if kind == '@kind.seal@' then
    return redis.call('PTTL', want.key), 0
  elseif kind == '@kind.claim@' then
    local claim = rule.decode(value, want)
    claim = claim.several and rule.load(claim, want) or claim
    entries[1] = encode_entry(claim, rule.ALL, redis.call('PTTL', want.key))
  elseif kind and kind ~= '@kind.readers@' then
    entries[1] = {'foreign', tostring(redis.call('PTTL', want.key))}
  end
  return -1, entries[1] and rule.ALL or 0
end

-- At most `limit` entries of a queue: the first; or, if `shown` entries up to the ticket `last` were shown before, the next.
local function inspect(want, limit, shown, last)
  if shown == 0 then
    rule.settle({want})
  end
  local queue, entries = rule.queue_of(want), {}
  local sealed, capacity = inspect_key(want, entries)
  -- A holder at the key that is not behind `last` was shown before.
  if shown > 0 and entries[1] and not (tonumber(entries[1][2]) > tonumber(last)) then
    entries = {}
  end
  local following = redis.call('ZRANGEBYSCORE', queue, '(' .. last, '+inf', 'WITHSCORES', 'LIMIT', 0, limit - #entries)
  for index = 1, #following, 2 do
    local owner, weight, agreed = rule.decode_entry(following[index])
    local claim = rule.load(owner, want)
    last = following[index + 1]
    if claim then
      capacity = agreed
      entries[#entries + 1] = encode_entry(claim, weight, redis.call('PTTL', rule.record_of(claim)))
    else
      rule.evict(queue, following[index], owner, want.key)
    end
  end
  budget = budget - 1 - #following / 2
  return {tostring(sealed), tostring(capacity), entries, tostring(redis.call('ZCOUNT', queue, '(' .. last, '+inf'))}
end

local replies = {}
for index, key in ipairs(KEYS) do
  if budget > 0 then
    local shown, last = 0, '0'
    if index == 1 then
      shown, last = shown_before, last_shown
    end
    local want = {key = key, tag = ARGV[index + 4]}
    local done, reply = pcall(inspect, want, math.min(max_entries - shown, budget), shown, last)
    replies[index] = done and reply or 'failed ' .. rule.message_of(reply)
  end
end
rule.publish()
return replies
