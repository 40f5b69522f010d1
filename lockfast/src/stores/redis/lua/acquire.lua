local asked = {
  owner = owner, client = client, home = home, note = note, since = now, ttl = ttl, count = block,
  detached = string.find(kind, 'd', 1, true) and true,
  -- Nobody hears pushes for it, so nobody can be asked whether its client lives.
  quiet = string.find(kind, 'q', 1, true) and true,
}
local refuse = string.find(kind, 'r', 1, true)
local lease = tonumber(ttl)
read_wants(asked, 8, 1)

local settled, trouble = pcall(settle, asked.wants)
if not settled then
  -- Others may have been handed something meanwhile.
  say()
  error(trouble, 0)
end
local known, why = load(asked)
if not known and is_alone(asked) then
  local taken, value = taken_by(KEYS[2])
  if taken == 'x' and is_of(value, asked) then
    known = read_value(value, asked.wants[1])
  end
end
if known then
  local answer
  if known.broken then
    answer = 'gone broken'
  elseif known.lingers then
    answer = 'gone left'
  elseif not is_whole(known) then
    forget(known)
    settle({})
    answer = 'gone unknown'
  else
    if known.held and is_alone(known) then
      raise(KEYS[2], lease)
    else
      extend(known, lease)
    end
    list_detached(known, lease)
    answer = standing(known)
  end
  say()
  return answer
elseif why ~= 'unknown' then
  say()
  return 'gone ' .. why
end

-- Seals and what is no lock first, then those who disagree about the capacity, then those in the way.
for _, want in ipairs(asked.wants) do
  local taken, value = taken_by(want.key)
  if taken == 'd' then
    say()
    return {'sealed', string.sub(value, 13)}
  elseif taken == 'odd' or taken == 'newer' then
    say()
    return redis.error_reply(taken == 'odd' and 'WRONGTYPE of a lock' or 'LOCKFAST-NEWER format')
  end
end
for index, want in ipairs(asked.wants) do
  local weight = tonumber(want.weight)
  if weight == 0 or weight > tonumber(want.capacity) then
    say()
    return {'weight', index}
  end
  local capacity = taken_by(want.key) and ALL
  if not capacity then
    local front = redis.call('ZRANGE', line_of(want), 0, 0)[1]
    if front then
      local _, _, agreed = read_seat(front)
      capacity = agreed
    end
  end
  if capacity and capacity ~= tonumber(want.capacity) then
    say()
    return {'capacity', index, capacity}
  end
end

local function has_room(want)
  if is_kept_out(want) then
    return false
  end
  local used = 0
  each_seat(line_of(want), function(seat)
    local _, weight, capacity = read_seat(seat)
    used = used + weight
    if used >= capacity then
      return 'stop'
    end
  end)
  return used + tonumber(want.weight) <= tonumber(want.capacity)
end

local blocked
for index, want in ipairs(asked.wants) do
  if not has_room(want) then
    blocked = blocked or index
  end
end

-- Who is in the way: the first of those who hold.
local function busy_with(want)
  local taken, value = taken_by(want.key)
  local ahead, holder = redis.call('ZCARD', line_of(want)), nil
  if taken and taken ~= 's' then
    ahead = ahead + 1
  end
  if taken == 'x' then
    holder = read_value(value, want)
  elseif not taken or taken == 's' then
    each_seat(line_of(want), function(seat)
      local claim = load(read_seat(seat))
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
  return {'busy', ahead, holder.owner, holder.first, digits(held_for), holder.note}
end

if blocked and refuse then
  local answer = busy_with(asked.wants[blocked])
  say()
  return answer
end

asked.first = draw(tickets, tonumber(block), tonumber(floor))
for _, want in ipairs(asked.wants) do
  if blocked or not is_exclusive(want) then
    redis.call('ZADD', line_of(want), asked.first, seat_of(asked, want))
    raise_line(want, lease)
  end
end
list_detached(asked, lease)
if blocked then
  asked.held = false
  save(asked, lease)
  touch(asked)
  say()
  return standing(asked)
end
take(asked, lease)
say()
return standing(asked)
