rule.listens = heard or {}

local function lease_of(claim)
  return math.max(1, redis.call('PTTL', rule.is_alone(claim) and claim.held and claim.wants[1].key or rule.record_of(claim)))
end

-- Writes a holding claim down again, with this lease. Begins with what a full Redis allows.
local function write(claim, lease)
  for _, want in ipairs(claim.wants) do
    if rule.is_exclusive(want) then
      redis.call('PEXPIRE', want.key, lease)
      rule.put_at(want.key, rule.value_of(claim), lease)
    else
      rule.raise_line(want, lease)
    end
  end
  if not rule.is_alone(claim) then
    redis.call('PEXPIRE', rule.record_of(claim), lease)
    rule.save(claim, lease)
  end
  for _, want in ipairs(claim.wants) do
    if rule.is_reader(want) then
      rule.mark_anew(want)
    end
  end
  rule.touch(claim)
end

-- Leaves a tombstone, which keeps the claim's id out. One that lives longer stays as it is.
local function bury(claim, why, lease)
  local record = rule.record_of(claim)
  if redis.call('PTTL', record) < lease then
    -- Begins with what a full Redis allows.
    redis.call('PEXPIRE', record, lease)
    redis.call('SET', record, 'gone ' .. why, 'PX', lease, 'NX')
  end
end

-- The first claim that does not fit on one of the names of a claim that holds.
local function first_waiter(want)
  if rule.last_holds(want) then
    return nil
  end
  local used, first = rule.is_exclusive(want) and rule.ALL or 0, nil
  rule.each_seat(rule.line_of(want), function(seat, record)
    local who, weight, capacity = rule.read_seat(seat)
    if rule.load(who, want, record) then
      used = used + weight
      if used > capacity then
        first = who
        return 'stop'
      end
    end
  end, true)
  return first
end

-- The lease of `claim` ends after `span`, earlier than the claims behind it were told. Each first waiter asks then.
local function tell_first_waiters(claim, span)
  local told = {}
  for _, want in ipairs(claim.wants) do
    local first = first_waiter(want)
    if first and not told[first.owner] then
      told[first.owner] = true
      rule.tell(first.client, 'recheck ' .. first.owner .. ' ' .. rule.digits(span))
    end
  end
end

local function is_at_work(claim)
  return claim and claim.held and not claim.broken and not claim.lingers and rule.is_whole(claim)
end

local leave = {}

function leave.done(claim)
  local known, why = rule.find(claim)
  if not known then
    -- Its lease may have run out before anybody took it out of its lines.
    for _, want in ipairs(claim.wants) do
      if redis.call('ZREM', rule.line_of(want), rule.seat_of(claim, want)) == 1 then
        rule.touched[want.key] = true
        rule.unsettle(want)
      end
    end
    return 'gone ' .. why
  end
  rule.forget(known)
  return known.broken and 'gone broken' or 'gone left'
end

function leave.unknown(claim, lease)
  local answer = leave.done(claim)
  bury(claim, 'left', tonumber(lease))
  return answer
end

function leave.linger(claim, span)
  local known = rule.find(claim)
  span = tonumber(span)
  if not known or not known.held or known.broken or span <= 0 or not rule.is_whole(known) then
    return leave.done(claim)
  end
  if not known.lingers then
    known.lingers = true
    write(known, span)
    tell_first_waiters(known, span)
  end
  return 'gone left'
end

function leave.seal(claim, value, keep)
  local known = rule.find(claim)
  local may = is_at_work(known)
  for _, want in ipairs(claim.wants) do
    may = may and rule.is_exclusive(want)
  end
  local answer = leave.done(claim)
  if may then
    for _, want in ipairs(known.wants) do
      local line = rule.line_of(want)
      for _, seat in ipairs(redis.call('ZRANGE', line, 0, -1)) do
        local who = rule.read_seat(seat)
        local waiting = rule.load(who, want)
        if waiting then
          rule.forget(waiting)
          rule.tell(who.client, 'gone ' .. who.owner)
        else
          rule.bury(line, seat, who, want.key)
        end
      end
      rule.put_at(want.key, 'lockfast1 d ' .. value, keep)
    end
  end
  return answer
end

local function is_last(claim, want)
  local line = rule.line_of(want)
  if rule.is_exclusive(want) then
    return redis.call('EXISTS', line) == 0
  end
  local rank = redis.call('ZRANK', line, rule.seat_of(claim, want))
  for _, seat in ipairs(redis.call('ZRANGE', line, rank + 1, -1)) do
    local behind = rule.load(rule.read_seat(seat), want)
    if behind and not behind.held then
      return false
    end
  end
  return true
end

function leave.unless_alone(claim, block, floor, lease)
  local known = rule.find(claim)
  block, floor, lease = tonumber(block), tonumber(floor), tonumber(lease)
  if not is_at_work(known) then
    -- A late copy, of a claim that went on by the first: what became of the next holder is not its to end.
    if known and known.held and rule.is_whole(known) and tonumber(known.first) > floor then
      return known.broken and 'gone broken' or 'gone left'
    end
    return leave.done(claim)
  end
  if tonumber(known.first) <= floor then
    for _, want in ipairs(known.wants) do
      if not is_last(known, want) then
        return leave.done(claim)
      end
    end
    lease = math.max(lease, lease_of(known))
    -- A full Redis refuses to count, unless something was written before.
    redis.call('PEXPIRE', rule.is_alone(known) and known.wants[1].key or rule.record_of(known), lease)
    known.first, known.count = rule.draw(block, floor), rule.digits(block)
    for _, want in ipairs(known.wants) do
      if not rule.is_exclusive(want) then
        redis.call('ZADD', rule.line_of(want), known.first, rule.seat_of(known, want))
      end
    end
    write(known, lease)
  else
    rule.extend(known, lease)
  end
  return rule.standing(known)
end

-- `claim` has just the name; whose claim it is follows from the ticket.
leave['break'] = function(claim, ticket, at_once)
  local want, known = claim.wants[1], nil
  ticket = tonumber(ticket)
  local kind, value = rule.taken_by(want.key)
  if kind == 'x' then
    known = rule.read_value(value, want)
    known = known.several and rule.load(known, want) or known
  end
  if not known or not rule.has_ticket(known, ticket) then
    local seats = redis.call('ZREVRANGEBYSCORE', rule.line_of(want), rule.digits(ticket), '-inf', 'LIMIT', 0, 1)
    known = seats[1] and rule.load(rule.read_seat(seats[1]), want)
  end
  if not known or not rule.has_ticket(known, ticket) then
    return 'gone unknown'
  end
  -- What is not whole has lost something to somebody else, and must not be written down again.
  if at_once == '1' or known.lingers or not known.held or not rule.is_whole(known) then
    rule.forget(known)
    bury(known, 'broken', tonumber(known.ttl))
    rule.tell(known.client, 'gone ' .. known.owner)
  elseif not known.broken then
    known.broken = true
    write(known, lease_of(known))
    rule.tell(known.client, 'gone ' .. known.owner)
  end
  return 'gone broken'
end

local answers = {}
for index, leaving in ipairs(leavings) do
  local how, claim, one, two, three = unpack(leaving, 1, 5)
  -- One key of another kind must not stop the others: what is not there any more is left.
  local done, answer = pcall(leave[how], claim, one, two, three)
  if not done and rule.is_of_a_replica(answer) then
    return redis.error_reply('READONLY this server is a replica')
  end
  answers[index] = done and answer or 'failed ' .. rule.words_of(answer)
  pcall(rule.settle, {})
end
rule.say()
return answers
