-- Going through a line.

-- Who stands there, from the front. `visit` says 'stop', or 'gone' of a seat that it took out. Where it looks at records, these are
-- read together.
function rule.each_seat(line, visit, reads)
  local from, size = 0, 2
  while true do
    local seats = redis.call('ZRANGE', line, from, from + size - 1)
    local gone = 0
    local records = reads and seats[1] and rule.records_of(seats)
    for index, seat in ipairs(seats) do
      local verdict = visit(seat, records and records[index])
      if verdict == 'stop' then
        return
      elseif verdict == 'gone' then
        gone = gone + 1
      end
    end
    if #seats < size then
      return
    end
    from, size = from + #seats - gone, 64
  end
end

-- A dead seat is taken out. Whose it was is told: perhaps only its renewals did not arrive.
function rule.bury(line, seat, claim, key)
  redis.call('ZREM', line, seat)
  rule.tell(claim.client, 'gone ' .. claim.owner)
  rule.touched[key] = true
  rule.removed = rule.removed + 1
end

-- The records of seats, and what they are called. What is of another kind reads as nothing here.
function rule.records_of(seats)
  local keys = {}
  for index, seat in ipairs(seats) do
    keys[index] = 'lockfast:{' .. string.sub(seat, 51, 53) .. '}:claim:' .. string.sub(seat, 1, 32)
  end
  return redis.call('MGET', unpack(keys)), keys
end

-- Whether the last in line, of those who live, holds: then all fit here, and nothing can be handed on. Says its weight, too.
function rule.last_holds(want)
  local line = rule.line_of(want)
  while rule.removed < rule.MOST_REMOVED do
    local seat = redis.call('ZRANGE', line, -1, -1)[1]
    if not seat then
      return true
    end
    local who, weight = rule.read_seat(seat)
    local claim = rule.load(who, want)
    if claim then
      return claim.held, weight
    end
    rule.bury(line, seat, who, want.key)
  end
  return false
end

-- Takes out who stands in front and is dead, or cannot be told that its turn has come: a whole process may have died in line, so
-- many at a time. As far as the first who lives, and no further: the others' turn has not come.
function rule.sweep(want)
  local line, size, sub = rule.line_of(want), 2, string.sub
  while rule.removed < rule.MOST_REMOVED do
    local seats, gone, unheard = redis.call('ZRANGE', line, 0, size - 1), {}, {}
    if not seats[1] then
      return
    end
    local claims, records = rule.records_of(seats)
    for index, seat in ipairs(seats) do
      local claim, client = claims[index], sub(seat, 34, 49)
      if not claim or sub(claim, 1, 5) == 'gone ' then
        if rule.is_listening(client) then
          rule.tell(client, 'gone ' .. sub(seat, 1, 32))
        end
      -- One that waits for this name alone, and hears pushes; what else there is, is `hand_to`'s.
      elseif sub(claim, 1, 68) == 'lockfast1 x ' .. sub(seat, 1, 53) .. ' - ' and not rule.is_listening(client) then
        unheard[#unheard + 1] = records[index]
      else
        break
      end
      gone[index] = seat
    end
    if unheard[1] then
      redis.call('DEL', unpack(unheard))
    end
    if gone[1] then
      redis.call('ZREM', line, unpack(gone))
      rule.touched[want.key] = true
      rule.removed = rule.removed + #gone
    end
    if #gone < size then
      return
    end
    size = 128
  end
end
