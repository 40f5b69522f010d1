-- The rest of acquire and acquire_alone, by the rule. `claim`, `flags`, `ttl`, `block`, `floor` and `now` are as declared at the
-- top of both.
--
-- Reply 'held FIRST COUNT'; 'waiting FIRST RECHECK POSITION', RECHECK in milliseconds or 'soon'; 'gone WHY';
--       {'sealed', value}; {'weight', index} or {'capacity', index, capacity} for a demand that is refused;
--       {'busy', entries} or {'busy', entries, owner, fence, held for in milliseconds, note} if refused
claim.quiet = string.find(flags, 'q', 1, true) and true
local refuse = string.find(flags, 'r', 1, true)
local lease = tonumber(ttl)

-- Every return publishes: other claims may have been granted before a later step failed.
local settled, failure = pcall(rule.settle, claim.wants)
if not settled then
  rule.publish()
  error(failure, 0)
end
local known, why = rule.find(claim)
if known then
  local reply
  if known.broken then
    reply = 'gone broken'
  elseif known.lingers then
    reply = 'gone left'
  elseif not rule.is_whole(known) then
    rule.remove(known)
    rule.settle({})
    reply = 'gone unknown'
  else
    rule.extend(known, lease)
    listing.list_detached(known, lease)
    reply = rule.standing(known)
  end
  rule.publish()
  return reply
elseif why ~= 'unknown' then
  rule.publish()
  return 'gone ' .. why
end

-- Checked in this order: seals and keys that are no lock, capacities that disagree, claims that leave no room.
for _, want in ipairs(claim.wants) do
  local kind, value = rule.at_key(want.key)
  if kind == 'd' then
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
  local capacity = rule.at_key(want.key) and rule.ALL
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

-- Without room, dead entries among the holders are evicted before the claim waits.
local function has_room_for(want)
  if has_room(want) then
    return true
  end
  local settled, failure = pcall(rule.settle, {want}, true)
  if not settled then
    rule.publish()
    error(failure, 0)
  end
  return has_room(want)
end

local blocked
for index, want in ipairs(claim.wants) do
  if not has_room_for(want) then
    blocked = blocked or index
  end
end

-- The reply that names the first holder of a queue without room.
local function busy_with(want)
  local kind, value = rule.at_key(want.key)
  local ahead, holder = redis.call('ZCARD', rule.queue_of(want)), nil
  if kind and kind ~= 's' then
    ahead = ahead + 1
  end
  if kind == 'x' then
    holder = rule.decode(value, want)
  elseif not kind or kind == 's' then
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

if blocked and refuse then
  local reply = busy_with(claim.wants[blocked])
  rule.publish()
  return reply
end

local drawn, first = pcall(rule.draw, tonumber(block), tonumber(floor))
if not drawn then
  rule.publish()
  error(first, 0)
end
claim.first = first
for _, want in ipairs(claim.wants) do
  if blocked or not rule.is_exclusive(want) then
    redis.call('ZADD', rule.queue_of(want), claim.first, rule.entry_of(claim, want))
    rule.raise_queue(want, lease)
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
