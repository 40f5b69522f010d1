-- The second half of the scripts acquire and acquire_alone, by the rule. `claim`, `flags`, `ttl`, `block`, `floor` and `now` are as
-- declared in the first file of each.
--
-- Reply 'held FIRST COUNT'; 'waiting FIRST RECHECK POSITION', RECHECK in milliseconds or 'soon'; 'gone WHY';
--       {'sealed', value}; {'weight', index} or {'capacity', index, capacity} for a demand that is refused;
--       {'busy', entries} or {'busy', entries, owner, fence, held for in milliseconds, note} if refused
claim.quiet = string.find(flags, 'q', 1, true) and true
local is_refused_if_busy = string.find(flags, 'r', 1, true)
local lease = tonumber(ttl)

-- Every return publishes: other claims may have been granted before a later step failed.
local settled, failure = pcall(rule.settle, claim.wants)
if not settled then
  rule.publish()
  error(failure, 0)
end
local stored, why = rule.find(claim)
if stored then
  local reply
  if stored.broken then
    reply = 'gone broken'
  elseif stored.lingers then
    reply = 'gone left'
  elseif not rule.is_whole(stored) then
    rule.remove(stored)
    rule.settle({})
    reply = 'gone unknown'
  else
    rule.extend(stored, lease)
    listing.list_detached(stored, lease)
    reply = rule.standing(stored)
  end
  rule.publish()
  return reply
elseif why ~= 'unknown' then
  rule.publish()
  return 'gone ' .. why
end

-- Checked in this order: seals and keys that are no lock, capacities that disagree, claims that leave no room.
for _, want in ipairs(claim.wants) do
  local kind, value = rule.read_key(want.key)
  if kind == '@kind.seal@' then
    rule.publish()
    return {'sealed', string.sub(value, @value.sealed@)}
  elseif kind == 'wrong_type' or kind == 'newer' then
    rule.publish()
    return redis.error_reply(kind == 'wrong_type' and 'WRONGTYPE of a lock' or 'LOCKFAST-NEWER format')
  end
end
for index, want in ipairs(claim.wants) do
  local weight = tonumber(want.weight)
  if weight == 0 or weight > tonumber(want.capacity) then
    rule.publish()
    return {'weight', index}
  end
  local capacity = rule.read_key(want.key) and rule.ALL
  if not capacity then
    local front = redis.call('ZRANGE', rule.queue_of(want), 0, 0)[1]
    if front then
      local _, _, agreed = rule.decode_entry(front)
      capacity = agreed
    end
  end
  if capacity and capacity ~= tonumber(want.capacity) then
    rule.publish()
    return {'capacity', index, capacity}
  end
end

local function has_room(want)
  if rule.is_kept_out(want) then
    return false
  end
  -- A reader fits behind a reader that holds, for any number of readers.
  local holds, last = rule.last_holds(want)
  if holds and rule.is_reader(want) and last ~= rule.ALL then
    return true
  end
  local used = 0
  rule.each_entry(rule.queue_of(want), function(entry)
    local _, weight, capacity = rule.decode_entry(entry)
    used = used + weight
    if used >= capacity then
      return 'stop'
    end
  end)
  return used + tonumber(want.weight) <= tonumber(want.capacity)
end

-- As `has_room`. If there is none, dead entries among the holders are evicted, and room is checked again.
local function has_room_for(want)
  if has_room(want) then
    return true
  end
  local settled, failure = pcall(rule.settle, {want}, true)
  if not settled then
    -- Redis does not undo the evictions made so far: their pushes are sent.
    rule.publish()
    error(failure, 0)
  end
  return has_room(want)
end

-- The index of the first name without room, nil if all have room. All names are checked, so that dead
-- entries are evicted on each of them.
local blocked
for index, want in ipairs(claim.wants) do
  if not has_room_for(want) then
    blocked = blocked or index
  end
end

-- The reply to a refused claim: the number of entries ahead on this name, and the first holder.
local function busy_with(want)
  local kind, value = rule.read_key(want.key)
  local ahead, holder = redis.call('ZCARD', rule.queue_of(want)), nil
  if kind and kind ~= '@kind.readers@' then
    ahead = ahead + 1
  end
  if kind == '@kind.claim@' then
    holder = rule.decode(value, want)
  elseif not kind or kind == '@kind.readers@' then
    rule.each_entry(rule.queue_of(want), function(entry)
      local found = rule.load(rule.decode_entry(entry), want)
      if found and found.held then
        holder = found
        return 'stop'
      end
    end)
  end
  if not holder then
    return {'busy', ahead}
  end
  local held_for = math.max(0, tonumber(now) - tonumber(holder.since))
  return {'busy', ahead, holder.owner, holder.first, rule.digits(held_for), holder.note}
end

if blocked and is_refused_if_busy then
  local reply = busy_with(claim.wants[blocked])
  rule.publish()
  return reply
end

local drawn, first = pcall(rule.draw_tickets, tonumber(block), tonumber(floor))
if not drawn then
  rule.publish()
  error(first, 0)
end
claim.first = first
for _, want in ipairs(claim.wants) do
  if blocked or not rule.is_exclusive(want) then
    redis.call('ZADD', rule.queue_of(want), claim.first, rule.entry_of(claim, want))
    rule.raise_queue_expiry(want, lease)
  end
end
if blocked then
  claim.held = false
  rule.save(claim, lease)
  rule.note_change(claim)
  rule.publish()
  return rule.standing(claim)
end
rule.grant(claim, lease)
rule.publish()
return rule.standing(claim)
