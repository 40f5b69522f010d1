-- Nobody hears pushes for it, so nobody can be asked whether its client lives.
asked.quiet = string.find(kind, 'q', 1, true) and true
local refuse = string.find(kind, 'r', 1, true)
local lease = tonumber(ttl)

local settled, trouble = pcall(rule.settle, asked.wants)
if not settled then
  -- Others may have been handed something meanwhile.
  rule.say()
  error(trouble, 0)
end
local known, why = rule.find(asked)
if known then
  local answer
  if known.broken then
    answer = 'gone broken'
  elseif known.lingers then
    answer = 'gone left'
  elseif not rule.is_whole(known) then
    rule.forget(known)
    rule.settle({})
    answer = 'gone unknown'
  else
    rule.extend(known, lease)
    listing.list_detached(known, lease)
    answer = rule.standing(known)
  end
  rule.say()
  return answer
elseif why ~= 'unknown' then
  rule.say()
  return 'gone ' .. why
end

-- Seals and what is no lock first, then those who disagree about the capacity, then those in the way.
for _, want in ipairs(asked.wants) do
  local taken, value = rule.taken_by(want.key)
  if taken == 'd' then
    rule.say()
    return {'sealed', string.sub(value, 13)}
  elseif taken == 'odd' or taken == 'newer' then
    rule.say()
    return redis.error_reply(taken == 'odd' and 'WRONGTYPE of a lock' or 'LOCKFAST-NEWER format')
  end
end
for index, want in ipairs(asked.wants) do
  local weight = tonumber(want.weight)
  if weight == 0 or weight > tonumber(want.capacity) then
    rule.say()
    return {'weight', index}
  end
  local capacity = rule.taken_by(want.key) and rule.ALL
  if not capacity then
    local front = redis.call('ZRANGE', rule.line_of(want), 0, 0)[1]
    if front then
      local _, _, agreed = rule.read_seat(front)
      capacity = agreed
    end
  end
  if capacity and capacity ~= tonumber(want.capacity) then
    rule.say()
    return {'capacity', index, capacity}
  end
end

local function has_room(want)
  if rule.is_kept_out(want) then
    return false
  end
  -- Behind one that reads, whoever wants to read does.
  local holds, last = rule.last_holds(want)
  if holds and rule.is_reader(want) and last ~= rule.ALL then
    return true
  end
  local used = 0
  rule.each_seat(rule.line_of(want), function(seat)
    local _, weight, capacity = rule.read_seat(seat)
    used = used + weight
    if used >= capacity then
      return 'stop'
    end
  end)
  return used + tonumber(want.weight) <= tonumber(want.capacity)
end

-- Who finds no room looks for the dead among those who hold, before it waits.
local function has_room_for(want)
  if has_room(want) then
    return true
  end
  -- Others may have been handed something meanwhile, here or before.
  local settled, trouble = pcall(rule.settle, {want}, true)
  if not settled then
    rule.say()
    error(trouble, 0)
  end
  return has_room(want)
end

local blocked
for index, want in ipairs(asked.wants) do
  if not has_room_for(want) then
    blocked = blocked or index
  end
end

-- Who is in the way: the first of those who hold.
local function busy_with(want)
  local taken, value = rule.taken_by(want.key)
  local ahead, holder = redis.call('ZCARD', rule.line_of(want)), nil
  if taken and taken ~= 's' then
    ahead = ahead + 1
  end
  if taken == 'x' then
    holder = rule.read_value(value, want)
  elseif not taken or taken == 's' then
    rule.each_seat(rule.line_of(want), function(seat)
      local claim = rule.load(rule.read_seat(seat), want)
      if claim and claim.held then
        holder = claim
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
  local answer = busy_with(asked.wants[blocked])
  rule.say()
  return answer
end

local drawn, first = pcall(rule.draw, tonumber(block), tonumber(floor))
if not drawn then
  rule.say()
  error(first, 0)
end
asked.first = first
for _, want in ipairs(asked.wants) do
  if blocked or not rule.is_exclusive(want) then
    redis.call('ZADD', rule.line_of(want), asked.first, rule.seat_of(asked, want))
    rule.raise_line(want, lease)
  end
end
if blocked then
  asked.held = false
  rule.save(asked, lease)
  rule.touch(asked)
  rule.say()
  return rule.standing(asked)
end
rule.take(asked, lease)
rule.say()
return rule.standing(asked)
