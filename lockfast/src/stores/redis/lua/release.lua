-- The claim as it is kept, holding or waiting; or nil and why it is not.
local function find(claim)
  if is_alone(claim) then
    local kind, value = taken_by(claim.wants[1].key)
    if kind == 'x' and is_of(value, claim) then
      return read_value(value, claim.wants[1])
    end
  end
  return load(claim)
end

local function lease_of(claim)
  return math.max(1, redis.call('PTTL', is_alone(claim) and claim.held and claim.wants[1].key or record_of(claim)))
end

-- Writes a holding claim down again, with this lease. Begins with what a full Redis allows.
local function write(claim, lease)
  for _, want in ipairs(claim.wants) do
    if is_exclusive(want) then
      redis.call('PEXPIRE', want.key, lease)
      put_at(want.key, value_of(claim), lease)
    else
      raise_line(want, lease)
    end
  end
  if not is_alone(claim) then
    redis.call('PEXPIRE', record_of(claim), lease)
    save(claim, lease)
  end
  for _, want in ipairs(claim.wants) do
    if is_reader(want) then
      mark_anew(want)
    end
  end
  touch(claim)
end

local function mark(claim, why, lease)
  local record = record_of(claim)
  redis.call('PEXPIRE', record, lease)
  if not redis.call('SET', record, 'gone ' .. why, 'PX', lease, 'NX') then
    raise(record, lease)
  end
end

local function is_at_work(claim)
  return claim and claim.held and not claim.broken and not claim.lingers and is_whole(claim)
end

local leave = {}

function leave.done(claim)
  local known, why = find(claim)
  if not known then
    -- Its lease may have run out before anybody took it out of its lines.
    for _, want in ipairs(claim.wants) do
      if redis.call('ZREM', line_of(want), seat_of(claim, want)) == 1 then
        touched[want.key] = true
        unsettle(want)
      end
    end
    return 'gone ' .. why
  end
  forget(known)
  return known.broken and 'gone broken' or 'gone left'
end

function leave.unknown(claim, lease)
  local answer = leave.done(claim)
  mark(claim, 'left', tonumber(lease))
  return answer
end

function leave.linger(claim, span)
  local known = find(claim)
  span = tonumber(span)
  if not known or not known.held or known.broken or span <= 0 or not is_whole(known) then
    return leave.done(claim)
  end
  if not known.lingers then
    known.lingers = true
    write(known, span)
  end
  return 'gone left'
end

function leave.seal(claim, value, keep)
  local known = find(claim)
  local may = is_at_work(known)
  for _, want in ipairs(claim.wants) do
    may = may and is_exclusive(want)
  end
  local answer = leave.done(claim)
  if may then
    for _, want in ipairs(known.wants) do
      local line = line_of(want)
      for _, seat in ipairs(redis.call('ZRANGE', line, 0, -1)) do
        local who = read_seat(seat)
        local waiting = load(who)
        if waiting then
          forget(waiting)
          tell(who.client, 'gone ' .. who.owner)
        else
          bury(line, seat, who, want.key)
        end
      end
      put_at(want.key, 'lockfast1 d ' .. value, keep)
    end
  end
  return answer
end

local function is_last(claim, want)
  local line = line_of(want)
  if is_exclusive(want) then
    return redis.call('EXISTS', line) == 0
  end
  local rank = redis.call('ZRANK', line, seat_of(claim, want))
  for _, seat in ipairs(redis.call('ZRANGE', line, rank + 1, -1)) do
    local behind = load(read_seat(seat))
    if behind and not behind.held then
      return false
    end
  end
  return true
end

function leave.unless_alone(claim, block, floor, lease)
  local known = find(claim)
  block, floor, lease = tonumber(block), tonumber(floor), tonumber(lease)
  if not is_at_work(known) then
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
    redis.call('PEXPIRE', is_alone(known) and known.wants[1].key or record_of(known), lease)
    known.first, known.count = draw(tickets, block, floor), digits(block)
    for _, want in ipairs(known.wants) do
      if not is_exclusive(want) then
        redis.call('ZADD', line_of(want), known.first, seat_of(known, want))
      end
    end
    write(known, lease)
  elseif is_alone(known) then
    raise(known.wants[1].key, lease)
  else
    extend(known, lease)
  end
  return standing(known)
end

-- `claim` has just the name; whose claim it is follows from the ticket.
leave['break'] = function(claim, ticket, at_once)
  local want, known = claim.wants[1], nil
  ticket = tonumber(ticket)
  local kind, value = taken_by(want.key)
  if kind == 'x' then
    known = read_value(value, want)
    known = known.several and load(known) or known
  end
  if not known or not has_ticket(known, ticket) then
    local seats = redis.call('ZREVRANGEBYSCORE', line_of(want), digits(ticket), '-inf', 'LIMIT', 0, 1)
    known = seats[1] and load(read_seat(seats[1]))
  end
  if not known or not has_ticket(known, ticket) then
    return 'gone unknown'
  end
  -- What is not whole has lost something to somebody else, and must not be written down again.
  if at_once == '1' or known.lingers or not known.held or not is_whole(known) then
    forget(known)
    mark(known, 'broken', tonumber(known.ttl))
    tell(known.client, 'gone ' .. known.owner)
  elseif not known.broken then
    known.broken = true
    write(known, lease_of(known))
    tell(known.client, 'gone ' .. known.owner)
  end
  return 'gone broken'
end

-- How many words belong to each way of leaving.
local more = {done = 0, unknown = 1, linger = 1, seal = 2, unless_alone = 3, ['break'] = 2}
local answers, at, used = {}, 2, 1
while at <= #ARGV do
  local how = ARGV[at]
  local claim = {owner = ARGV[at + 1], client = ARGV[at + 2], home = ARGV[at + 3]}
  at, used = read_wants(claim, at + 4, used)
  local one, two, three = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  at = at + more[how]
  -- One key of another kind must not stop the others: what is not there any more is left.
  local done, answer = pcall(leave[how], claim, one, two, three)
  if not done and is_of_a_replica(answer) then
    return redis.error_reply('READONLY this server is a replica')
  end
  answers[#answers + 1] = done and answer or 'failed ' .. words_of(answer)
  pcall(settle, {})
end
say()
return answers
