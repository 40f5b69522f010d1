-- The second half of the scripts release and release_alone, by the rule. `leavings` has for each claim the way it leaves, the
-- claim, and the arguments of the way. `subscribed` and `now` are as declared in the first file of each.
rule.subscribed = subscribed or {}

local function lease_of(claim)
  return math.max(1, redis.call('PTTL', rule.is_single_exclusive(claim) and claim.held and claim.wants[1].key or rule.record_of(claim)))
end

-- Stores a holder again, with this lease. The first write is one that a full Redis allows.
local function rewrite(claim, lease)
  for _, want in ipairs(claim.wants) do
    if rule.is_exclusive(want) then
      redis.call('PEXPIRE', want.key, lease)
      rule.set_key(want.key, rule.encode(claim), lease)
    else
      rule.raise_queue_expiry(want, lease)
    end
  end
  if not rule.is_single_exclusive(claim) then
    redis.call('PEXPIRE', rule.record_of(claim), lease)
    rule.save(claim, lease)
  end
  for _, want in ipairs(claim.wants) do
    if rule.is_reader(want) then
      rule.rewrite_reader_marker(want)
    end
  end
  rule.note_change(claim)
end

-- Leaves a tombstone, which keeps the claim's id out. One that lasts longer stays as it is.
local function leave_tombstone(claim, why, span)
  local record = rule.record_of(claim)
  if redis.call('PTTL', record) < span then
    -- The first write is one that a full Redis allows.
    redis.call('PEXPIRE', record, span)
    redis.call('SET', record, '@tombstone@' .. why, 'PX', span, 'NX')
  end
end

-- The first claim in the queue of `want` that does not fit there; `want` is one of the names of a holder.
local function first_waiter(want)
  if rule.last_holds(want) then
    return nil
  end
  local used, first = rule.is_exclusive(want) and rule.ALL or 0, nil
  rule.each_entry(rule.queue_of(want), function(entry, record)
    local owner, weight, capacity = rule.decode_entry(entry)
    if rule.load(owner, want, record) then
      used = used + weight
      if used > capacity then
        first = owner
        return 'stop'
      end
    end
  end, true)
  return first
end

-- Notifies the first waiter on each name of `claim`: the claim's lease ends after `span`, earlier than the waiter's recheck, and
-- the waiter asks again then.
local function notify_first_waiters(claim, span)
  local notified = {}
  for _, want in ipairs(claim.wants) do
    local first = first_waiter(want)
    if first and not notified[first.owner] then
      notified[first.owner] = true
      rule.push(first.client, 'recheck ' .. first.owner .. ' ' .. rule.digits(span))
    end
  end
end

-- Whether the claim holds, and has not begun to leave.
local function is_active_holder(claim)
  return claim and claim.held and not claim.broken and not claim.lingers and rule.is_whole(claim)
end

-- The ways to leave: a function for each, which returns the reply.
local leave = {}

function leave.done(claim)
  local stored, why = rule.find(claim)
  if not stored then
    -- The lease may have ended without an eviction: then entries are left.
    for _, want in ipairs(claim.wants) do
      if redis.call('ZREM', rule.queue_of(want), rule.entry_of(claim, want)) == 1 then
        rule.changed_keys[want.key] = true
        rule.unsettle(want)
      end
    end
    return 'gone ' .. why
  end
  rule.remove(stored)
  return stored.broken and 'gone broken' or 'gone left'
end

function leave.unknown(claim, span)
  local reply = leave.done(claim)
  -- The reply to a repeat of this request: 'left' only if this one removed the claim. 'unknown' is the reply without a tombstone.
  local why = string.match(reply, '^gone (%a+)$')
  leave_tombstone(claim, why == 'unknown' and 'unseen' or why, tonumber(span))
  return reply
end

function leave.linger(claim, span)
  local stored = rule.find(claim)
  span = tonumber(span)
  if not stored or not stored.held or stored.broken or span <= 0 or not rule.is_whole(stored) then
    return leave.done(claim)
  end
  -- Of two requests to linger the first counts: a repeated one must not hold the lock longer.
  if not stored.lingers then
    stored.lingers = true
    rewrite(stored, span)
    notify_first_waiters(stored, span)
  end
  return 'gone left'
end

function leave.seal(claim, value, keep)
  local stored = rule.find(claim)
  local may_seal = is_active_holder(stored)
  for _, want in ipairs(claim.wants) do
    may_seal = may_seal and rule.is_exclusive(want)
  end
  local reply = leave.done(claim)
  if may_seal then
    -- Order matters: waiters are removed before any queue is settled, so none is granted a sealed name.
    for _, want in ipairs(stored.wants) do
      local queue = rule.queue_of(want)
      for _, entry in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
        local owner = rule.decode_entry(entry)
        local waiting = rule.load(owner, want)
        if waiting then
          rule.remove(waiting)
          rule.push(owner.client, 'gone ' .. owner.owner)
        else
          rule.evict(queue, entry, owner, want.key)
        end
      end
      rule.set_key(want.key, '@seal@' .. value, keep)
    end
  end
  return reply
end

-- Whether no claim waits behind a holder on this name.
local function is_last(claim, want)
  local queue = rule.queue_of(want)
  if rule.is_exclusive(want) then
    return redis.call('EXISTS', queue) == 0
  end
  local rank = redis.call('ZRANK', queue, rule.entry_of(claim, want))
  for _, entry in ipairs(redis.call('ZRANGE', queue, rank + 1, -1)) do
    local behind = rule.load(rule.decode_entry(entry), want)
    if behind and not behind.held then
      return false
    end
  end
  return true
end

function leave.unless_alone(claim, block, floor, lease)
  local stored = rule.find(claim)
  block, floor, lease = tonumber(block), tonumber(floor), tonumber(lease)
  if not is_active_holder(stored) then
    -- This may be a late copy of a request that made the claim hold again, under later tickets. It must not end that hold.
    if stored and stored.held and rule.is_whole(stored) and tonumber(stored.first) > floor then
      return stored.broken and 'gone broken' or 'gone left'
    end
    return leave.done(claim)
  end
  if tonumber(stored.first) <= floor then
    for _, want in ipairs(stored.wants) do
      if not is_last(stored, want) then
        return leave.done(claim)
      end
    end
    lease = math.max(lease, lease_of(stored))
    -- A full Redis refuses INCRBY unless the script has written before.
    redis.call('PEXPIRE', rule.is_single_exclusive(stored) and stored.wants[1].key or rule.record_of(stored), lease)
    stored.first, stored.count = rule.draw_tickets(block, floor), rule.digits(block)
    for _, want in ipairs(stored.wants) do
      if not rule.is_exclusive(want) then
        redis.call('ZADD', rule.queue_of(want), stored.first, rule.entry_of(stored, want))
      end
    end
    rewrite(stored, lease)
  else
    rule.extend(stored, lease)
  end
  return rule.standing(stored)
end

-- `claim` has only the name; the ticket says which claim it is.
leave['break'] = function(claim, ticket, at_once)
  local want, stored = claim.wants[1], nil
  ticket = tonumber(ticket)
  local kind, value = rule.read_key(want.key)
  if kind == '@kind.claim@' then
    stored = rule.decode(value, want)
    stored = stored.several and rule.load(stored, want) or stored
  end
  if not stored or not rule.has_ticket(stored, ticket) then
    local entries = redis.call('ZREVRANGEBYSCORE', rule.queue_of(want), rule.digits(ticket), '-inf', 'LIMIT', 0, 1)
    stored = entries[1] and rule.load(rule.decode_entry(entries[1]), want)
  end
  if not stored or not rule.has_ticket(stored, ticket) then
    return 'gone unknown'
  end
  -- A claim that is not whole has lost a key or an entry to another program, and must not be stored again.
  if at_once == '1' or stored.lingers or not stored.held or not rule.is_whole(stored) then
    rule.remove(stored)
    leave_tombstone(stored, 'broken', tonumber(stored.ttl))
    rule.push(stored.client, 'gone ' .. stored.owner)
  elseif not stored.broken then
    stored.broken = true
    rewrite(stored, lease_of(stored))
    rule.push(stored.client, 'gone ' .. stored.owner)
  end
  return 'gone broken'
end

local replies = {}
for index, leaving in ipairs(leavings) do
  local way, claim, argument1, argument2, argument3 = unpack(leaving, 1, 5)
  -- A key of another type fails one claim and not the others of its batch.
  local done, reply = pcall(leave[way], claim, argument1, argument2, argument3)
  if not done and rule.is_of_a_replica(reply) then
    return redis.error_reply('READONLY this server is a replica')
  end
  replies[index] = done and reply or 'failed ' .. rule.message_of(reply)
  pcall(rule.settle, {})
end
rule.publish()
return replies
