-- The rule: a claim holds when, on each of its names, the claims up to and including it fit the capacity together.
--
-- Every verb settles the lines that its answer depends on: the dead are taken out, whoever is next is handed what was left,
-- and all that has to be told is told at the end.

-- How long a line outlives the leases in it, so that somebody notices who died in it, and tells.
rule.OUTLIVES = 10000
-- How many dead seats one call takes out, at a few microseconds each.
rule.MOST_REMOVED = 20000

rule.now, rule.removed = now, 0
rule.unsettled, rule.queued, rule.touched, rule.letters, rule.addressees, rule.listens = {}, {}, {}, {}, {}, {}

-- No verb shortens a lease.
function rule.raise(key, lease)
  if redis.call('PTTL', key) < lease then
    redis.call('PEXPIRE', key, lease)
  end
end

-- Not at every lease that ends a little later than the others.
function rule.raise_line(want, lease)
  local line = rule.line_of(want)
  if redis.call('PTTL', line) < lease + rule.OUTLIVES / 2 then
    redis.call('PEXPIRE', line, lease + rule.OUTLIVES)
  end
end

function rule.tell(client, letter)
  if not rule.letters[client] then
    rule.letters[client] = {}
    rule.addressees[#rule.addressees + 1] = client
  end
  table.insert(rule.letters[client], letter)
end

function rule.unsettle(want)
  if not rule.queued[want.key] then
    rule.queued[want.key] = true
    rule.unsettled[#rule.unsettled + 1] = want
  end
end

function rule.touch(claim)
  for _, want in ipairs(claim.wants) do
    rule.touched[want.key] = true
  end
end

-- Whether somebody hears what the claim's client is told. Asked before anything is decided, and once a client. Who may not
-- ask takes everybody for alive: then leases decide.
function rule.is_listening(client)
  if rule.listens[client] == nil then
    local answer = redis.pcall('PUBSUB', 'NUMSUB', 'lockfast:push:' .. client)
    rule.listens[client] = answer.err ~= nil or tonumber(answer[2]) > 0
  end
  return rule.listens[client]
end

-- Takes a claim out of every line, and frees what it held. Begins with what a full Redis allows.
function rule.forget(claim)
  local is_trace = rule.is_alone(claim) and claim.held
  if not is_trace then
    redis.call('DEL', rule.record_of(claim))
  end
  for _, want in ipairs(claim.wants) do
    if not is_trace then
      redis.call('ZREM', rule.line_of(want), rule.seat_of(claim, want))
    end
    if rule.is_exclusive(want) then
      local kind, value = rule.taken_by(want.key)
      if kind == 'x' and rule.is_of(value, claim) then
        rule.clear_at(want.key)
      end
    elseif rule.is_reader(want) and rule.is_mark_wrong(want) then
      rule.mark_anew(want)
    end
    rule.unsettle(want)
  end
  listing.unlist(claim)
  rule.touch(claim)
end

-- Whether what stands at the plain key keeps a claim out. Permits have nothing to do with it.
function rule.is_kept_out(want)
  if want.capacity ~= rule.ALL_WORD then
    return false
  end
  local kind = rule.taken_by(want.key)
  return kind and not (kind == 's' and rule.is_reader(want))
end

-- Whether a claim that waits has reached its turn on one of its names.
function rule.fits(claim, want)
  if rule.is_kept_out(want) then
    return false
  end
  local line, own, used, reached = rule.line_of(want), rule.seat_of(claim, want), 0, false
  rule.each_seat(line, function(seat)
    if seat == own then
      reached = true
      return 'stop'
    end
    local ahead, weight, capacity = rule.read_seat(seat)
    if redis.call('EXISTS', rule.record_of(ahead)) == 0 then
      rule.bury(line, seat, ahead, want.key)
      return 'gone'
    end
    used = used + weight
    if used >= capacity then
      return 'stop'
    end
  end)
  return reached and used + tonumber(want.weight) <= tonumber(want.capacity)
end

-- Writes down that a claim holds: its keys all at once, or none. Begins with what a full Redis allows: who is next in line
-- gets its turn there too.
function rule.take(claim, lease)
  claim.held, claim.since = true, rule.now
  if rule.is_alone(claim) then
    redis.call('DEL', rule.record_of(claim))
  else
    redis.call('PEXPIRE', rule.record_of(claim), lease)
    rule.save(claim, lease)
  end
  for _, want in ipairs(claim.wants) do
    if rule.is_exclusive(want) then
      rule.put_at(want.key, rule.value_of(claim), lease)
      redis.call('ZREM', rule.line_of(want), rule.seat_of(claim, want))
    elseif rule.is_reader(want) then
      rule.mark_shared(want.key, lease)
    end
  end
  rule.touch(claim)
end

-- Hands on to a claim that fits here, if it fits everywhere and somebody is there to hear of it. Says whether it is still in
-- line.
function rule.hand_to(claim, here)
  for _, want in ipairs(claim.wants) do
    if want.key ~= here and not rule.fits(claim, want) then
      return true
    end
  end
  -- In its last millisecond a lease has nothing left, and is not over yet.
  local lease = math.max(1, redis.call('PTTL', rule.record_of(claim)))
  if not claim.detached and not claim.quiet and not rule.is_listening(claim.client) then
    rule.forget(claim)
    rule.tell(claim.client, 'gone ' .. claim.owner)
    return false
  end
  rule.take(claim, lease)
  rule.tell(claim.client, 'held ' .. claim.owner .. ' ' .. claim.first)
  return true
end

-- Takes the dead out of one line, as far as they matter, and hands on to whoever is next. Where nobody waits, nothing is handed on,
-- and the dead are looked for only by who is `thorough`: they may be among many who hold.
function rule.settle_line(want, thorough)
  local line, used, kind = rule.line_of(want), 0, rule.taken_by(want.key)
  if want.capacity == rule.ALL_WORD and kind and kind ~= 's' then
    return
  end
  local removed = rule.removed
  if not thorough and rule.last_holds(want) then
    rule.mark_after(want, removed)
    return
  end
  -- Whose turn has not come keeps its place, whether it hears or not.
  if not kind or kind == 's' then
    rule.sweep(want)
  end
  rule.each_seat(line, function(seat, record)
    local who, weight, capacity = rule.read_seat(seat)
    if rule.removed >= rule.MOST_REMOVED or (capacity == rule.ALL and kind and kind ~= 's') then
      return 'stop'
    end
    local claim = rule.load(who, want, record)
    if not claim then
      rule.bury(line, seat, who, want.key)
      return 'gone'
    end
    -- Order matters: a dead one that does not fit stands in the way of those behind it, who may.
    if used + weight > capacity then
      return 'stop'
    end
    -- A mark is nobody's when all ahead were dead.
    if kind == 's' and weight == rule.ALL and used == 0 and rule.removed > removed then
      rule.mark_anew(want)
      kind = rule.taken_by(want.key)
    end
    -- A writer needs the key; readers may have left their mark there.
    if not claim.held and not (weight == rule.ALL and kind == 's') then
      if not rule.hand_to(claim, want.key) then
        return 'gone'
      end
      if claim.held and weight == rule.ALL then
        return 'stop'
      end
    end
    used = used + weight
  end, true)
  rule.mark_after(want, removed)
  -- There may be more to take out. Who stands last lives, and goes on with it, when it asks.
  if rule.removed >= rule.MOST_REMOVED then
    local last = redis.call('ZRANGE', line, -1, -1)[1]
    if last then
      local who = rule.read_seat(last)
      rule.tell(who.client, 'gone ' .. who.owner)
    end
  end
end

-- Settles these lines, and all that change by it. Fails when one of these cannot be settled; the others are, all the same.
function rule.settle(wants, thorough)
  local asked, failure = {}, nil
  for _, want in ipairs(wants) do
    asked[want.key] = true
    rule.unsettle(want)
  end
  while #rule.unsettled > 0 do
    local want = table.remove(rule.unsettled)
    rule.queued[want.key] = nil
    local done, problem = pcall(rule.settle_line, want, thorough and asked[want.key])
    if not done and asked[want.key] then
      failure = failure or problem
    end
  end
  if failure then
    error(failure, 0)
  end
end

-- A fresh block of tickets: never at or below what a client has seen, and after a loss of data above the clock.
function rule.draw(block, floor)
  local tickets = 'lockfast:tickets'
  local last = redis.call('INCRBY', tickets, block)
  local first = last - block + 1
  if first <= floor or first <= 1000000 then
    local time = redis.call('TIME')
    local least = math.max(floor, time[1] * 1000000 + time[2], last)
    redis.call('SET', tickets, rule.digits(least + block))
    first = least + 1
  end
  return rule.digits(first)
end

-- Where a waiting claim stands: when to ask again, in milliseconds, and how many are ahead.
--
-- It asks when the leases of who holds, of who waits first and of the one just ahead will have run out. When those between
-- are dead too, it finds that out then, and asks again. 'soon' instead when the one ahead is another program's, which tells
-- nobody when it is done, or when nobody hears what this one is told.
function rule.waits(claim)
  local longest, most, soon = 0, 0, claim.quiet
  for _, want in ipairs(claim.wants) do
    local line, kind = rule.line_of(want), rule.taken_by(want.key)
    local rank = redis.call('ZRANK', line, rule.seat_of(claim, want)) or 0
    -- The mark of readers may be one's who has left; they stand in line themselves.
    if kind == 'x' or kind == 'd' or kind == 's' and rank == 0 then
      longest = math.max(longest, redis.call('PTTL', want.key))
    elseif kind then
      -- Only who waits first asks now and then: the others look out for those ahead.
      soon = soon or rank == 0
    end
    if rank > 0 then
      local front = redis.call('ZRANGE', line, 0, 0)[1]
      longest = math.max(longest, redis.call('PTTL', rule.record_of(rule.read_seat(front))))
    end
    if rank > 1 then
      local ahead = redis.call('ZRANGE', line, rank - 1, rank - 1)[1]
      longest = math.max(longest, redis.call('PTTL', rule.record_of(rule.read_seat(ahead))))
    end
    most = math.max(most, (kind and kind ~= 's') and rank + 1 or rank)
  end
  return (soon and 'soon' or rule.digits(longest)) .. ' ' .. rule.digits(most)
end

-- Whether everything that a claim with a record needs is still there: an administrator, or an eviction, may have taken it.
function rule.is_whole(claim)
  for _, want in ipairs(claim.wants) do
    local kind, value = rule.taken_by(want.key)
    if claim.held and rule.is_exclusive(want) then
      if kind ~= 'x' or not rule.is_of(value, claim) then
        return false
      end
    else
      if not redis.call('ZSCORE', rule.line_of(want), rule.seat_of(claim, want)) then
        return false
      end
      if claim.held and rule.is_reader(want) and kind ~= 's' and kind ~= nil then
        return false
      end
    end
  end
  return true
end

-- Renews a claim. Without a lease it was only a question.
function rule.extend(claim, lease)
  if lease == 0 then
    return
  end
  if not (claim.held and rule.is_alone(claim)) then
    rule.raise(rule.record_of(claim), lease)
  end
  for _, want in ipairs(claim.wants) do
    if claim.held and rule.is_exclusive(want) then
      rule.raise(want.key, lease)
    else
      rule.raise_line(want, lease)
      if claim.held and rule.is_reader(want) then
        rule.mark_shared(want.key, lease)
      end
    end
  end
end

function rule.standing(claim)
  if claim.held then
    return 'held ' .. claim.first .. ' ' .. claim.count
  end
  return 'waiting ' .. claim.first .. ' ' .. rule.waits(claim)
end

-- What went wrong, as text: newer servers hand it over in a table.
function rule.words_of(failure)
  return type(failure) == 'table' and failure.err or tostring(failure)
end

-- Nothing can be written here any more: the caller has to look for another server, for all its claims.
function rule.is_of_a_replica(failure)
  return string.find(rule.words_of(failure), 'READONLY', 1, true)
end

-- What was decided is told at the end, to each once. Nothing depends on whether it arrives.
function rule.say()
  for _, client in ipairs(rule.addressees) do
    redis.pcall('PUBLISH', 'lockfast:push:' .. client, table.concat(rule.letters[client], '\n'))
  end
  rule.letters, rule.addressees = {}, {}
  if next(rule.touched) and redis.call('EXISTS', 'lockfast:watched') == 1 then
    for key in pairs(rule.touched) do
      redis.pcall('PUBLISH', 'lockfast:lines', key)
    end
  end
  rule.touched = {}
end
