-- The rule: a claim holds when, on each of its names, the claims up to and including it fit the capacity together.
--
-- Every verb settles the queues that its reply depends on: dead entries are evicted, and their names are handed off. All pushes are
-- published at the end, by `publish`.

-- `evicted`: how many entries this run has evicted.
rule.now, rule.evicted = now, 0
-- Queues that have to be settled: a list, and a set by key. `settled`: keys whose queue was settled in this run, at least once.
-- `deferred`: queues to settle once all pending ones are settled, by key; see `fits`.
rule.pending, rule.is_pending, rule.settled, rule.deferred = {}, {}, {}, {}
-- Pushes by client, and the clients in the order of their first push. `subscribed`: whether a client has a subscription, by client.
rule.pushes, rule.recipients, rule.subscribed, rule.changed_keys = {}, {}, {}, {}

-- Makes a key live at least `lease` milliseconds longer. No verb shortens a lease.
function rule.raise_expiry(key, lease)
  if redis.call('PTTL', key) < lease then
    redis.call('PEXPIRE', key, lease)
  end
end

-- A queue outlives the leases in it, so that a later verb finds the dead entries and notifies their clients. It is not raised for
-- each lease that ends a little later than the others.
function rule.raise_queue_expiry(want, lease)
  local queue = rule.queue_of(want)
  if redis.call('PTTL', queue) < lease + @outlives.min@ then
    redis.call('PEXPIRE', queue, lease + @outlives@)
  end
end

function rule.push(client, message)
  if not rule.pushes[client] then
    rule.pushes[client] = {}
    rule.recipients[#rule.recipients + 1] = client
  end
  table.insert(rule.pushes[client], message)
end

-- Notes that the queue of this name has to be settled. While a settled queue is not pending again, every waiter in it that fits and
-- wants no other name holds.
function rule.unsettle(want)
  if not rule.is_pending[want.key] then
    rule.is_pending[want.key] = true
    rule.pending[#rule.pending + 1] = want
  end
end

-- Notes that the queues of this claim have changed: their names are published while a client watches queues.
function rule.note_change(claim)
  for _, want in ipairs(claim.wants) do
    rule.changed_keys[want.key] = true
  end
end

-- Whether the client has a subscription. Checked before a grant is written, and once for each client. Without the right to check,
-- every client counts as subscribed: then leases decide.
function rule.is_subscribed(client)
  if rule.subscribed[client] == nil then
    local reply = redis.pcall('PUBSUB', 'NUMSUB', 'lockfast:push:' .. client)
    rule.subscribed[client] = reply.err ~= nil or tonumber(reply[2]) > 0
  end
  return rule.subscribed[client]
end

-- Takes a claim out of all its queues, and frees its names. The first write is one that a full Redis allows.
function rule.remove(claim)
  local is_only_at_key = rule.is_single_exclusive(claim) and claim.held
  if not is_only_at_key then
    redis.call('DEL', rule.record_of(claim))
  end
  for _, want in ipairs(claim.wants) do
    if not is_only_at_key then
      redis.call('ZREM', rule.queue_of(want), rule.entry_of(claim, want))
    end
    if rule.is_exclusive(want) then
      local kind, value = rule.read_key(want.key)
      if kind == '@kind.claim@' and rule.is_text_of(value, claim) then
        rule.delete_key(want.key)
      end
    elseif rule.is_reader(want) and rule.is_reader_marker_wrong(want) then
      rule.rewrite_reader_marker(want)
    end
    rule.unsettle(want)
  end
  listing.unlist(claim)
  rule.note_change(claim)
end

-- Whether the value of the plain key keeps the claim out. Permits do not use the plain key.
function rule.is_kept_out(want)
  if want.capacity ~= rule.ALL_TEXT then
    return false
  end
  local kind = rule.read_key(want.key)
  return kind and not (kind == '@kind.readers@' and rule.is_reader(want))
end

-- Whether a waiter that fits on the name `here` also fits on `want`, another one of its names.
--
-- Order matters: if entries are ahead of the waiter in the queue of `want`, that queue is settled first, and then the queue of
-- `here` again. An entry ahead may fit too, and once the last claim of a queue holds, no verb searches for waiters before it. In
-- a settled queue a dead entry does not matter: the claims behind it fit beside it.
function rule.fits(claim, want, here)
  local is_settled = rule.settled[want.key] and not rule.is_pending[want.key]
  local is_kept_out, own, used, reached = rule.is_kept_out(want), rule.entry_of(claim, want), 0, false
  if is_kept_out and (is_settled or rule.read_key(want.key) ~= '@kind.readers@') then
    return false
  end
  rule.each_entry(rule.queue_of(want), function(entry)
    if entry == own then
      reached = not is_kept_out
      return 'stop'
    elseif not is_settled then
      rule.unsettle(want)
      rule.deferred[here.key] = here
      return 'stop'
    end
    local _, weight, capacity = rule.decode_entry(entry)
    used = used + weight
    if used >= capacity then
      return 'stop'
    end
  end)
  return reached and used + tonumber(want.weight) <= tonumber(want.capacity)
end

-- Stores that a claim holds all its names. The first write is one that a full Redis allows: hand-offs go on there too.
function rule.grant(claim, lease)
  claim.held, claim.since = true, rule.now
  if rule.is_single_exclusive(claim) then
    redis.call('DEL', rule.record_of(claim))
  else
    redis.call('PEXPIRE', rule.record_of(claim), lease)
    rule.save(claim, lease)
  end
  for _, want in ipairs(claim.wants) do
    if rule.is_exclusive(want) then
      rule.set_key(want.key, rule.encode(claim), lease)
      redis.call('ZREM', rule.queue_of(want), rule.entry_of(claim, want))
    elseif rule.is_reader(want) then
      rule.raise_reader_marker(want.key, lease)
    end
  end
  rule.note_change(claim)
end

-- Grants a waiter that fits on the name `here`, if it fits on all its names and its client has a subscription. Returns whether the
-- entry is still there.
function rule.hand_off(claim, here)
  for _, want in ipairs(claim.wants) do
    if want.key ~= here.key and not rule.fits(claim, want, here) then
      return true
    end
  end
  -- At least 1: in its last millisecond a lease has 0 ms left and still lives.
  local lease = math.max(1, redis.call('PTTL', rule.record_of(claim)))
  if not claim.detached and not claim.quiet and not rule.is_subscribed(claim.client) then
    rule.remove(claim)
    rule.push(claim.client, 'gone ' .. claim.owner)
    return false
  end
  rule.grant(claim, lease)
  rule.push(claim.client, 'held ' .. claim.owner .. ' ' .. claim.first)
  return true
end

-- Evicts the dead entries of one queue that block waiters, and hands off to the next waiters. Without a waiter no hand-off is due.
-- Then dead entries are evicted only if `thorough`: a search for them reads the records of all holders.
function rule.settle_queue(want, thorough)
  local queue, used, kind = rule.queue_of(want), 0, rule.read_key(want.key)
  if want.capacity == rule.ALL_TEXT and kind and kind ~= '@kind.readers@' then
    return
  end
  local evicted = rule.evicted
  if not thorough and rule.last_holds(want) then
    rule.mend_reader_marker(want, evicted)
    return
  end
  -- While the key is held, no turn has come: waiters stay, with or without a subscription.
  if not kind or kind == '@kind.readers@' then
    rule.sweep(want)
  end
  rule.each_entry(queue, function(entry, record)
    local owner, weight, capacity = rule.decode_entry(entry)
    if rule.evicted >= @max_evicted@ or (capacity == rule.ALL and kind and kind ~= '@kind.readers@') then
      return 'stop'
    end
    local claim = rule.load(owner, want, record)
    if not claim then
      rule.evict(queue, entry, owner, want.key)
      return 'gone'
    end
    -- Order matters: a dead entry is evicted before its weight counts, or it would block living entries behind it that fit.
    if used + weight > capacity then
      return 'stop'
    end
    -- A writer is first, and entries were evicted before it: all readers of the marker are dead.
    if kind == '@kind.readers@' and weight == rule.ALL and used == 0 and rule.evicted > evicted then
      rule.rewrite_reader_marker(want)
      kind = rule.read_key(want.key)
    end
    -- A writer needs the key to be free of the reader marker.
    if not claim.held and not (weight == rule.ALL and kind == '@kind.readers@') then
      if not rule.hand_off(claim, want) then
        return 'gone'
      end
      if claim.held and weight == rule.ALL then
        return 'stop'
      end
    end
    used = used + weight
  end, true)
  rule.mend_reader_marker(want, evicted)
  -- The eviction budget is exhausted: the last waiter is notified, and its next request continues.
  if rule.evicted >= @max_evicted@ then
    local last = redis.call('ZRANGE', queue, -1, -1)[1]
    if last then
      local owner = rule.decode_entry(last)
      rule.push(owner.client, 'gone ' .. owner.owner)
    end
  end
end

-- Settles the queues of `wants`, and all queues that change meanwhile. Fails if a queue of `wants` cannot be settled, after all
-- others were settled.
function rule.settle(wants, thorough)
  local requested, failure = {}, nil
  for _, want in ipairs(wants) do
    requested[want.key] = true
    rule.unsettle(want)
  end
  while #rule.pending > 0 or next(rule.deferred) do
    local want = table.remove(rule.pending)
    local is_thorough = want and thorough and requested[want.key]
    if not want then
      -- All queues that the deferred one waited for are settled. Its last claim may hold by now, and waiters before it may fit:
      -- so all entries are visited.
      local key = next(rule.deferred)
      want, rule.deferred[key], is_thorough = rule.deferred[key], nil, true
    end
    rule.is_pending[want.key], rule.settled[want.key] = nil, true
    local done, problem = pcall(rule.settle_queue, want, is_thorough)
    if not done and requested[want.key] then
      failure = failure or problem
    end
  end
  if failure then
    error(failure, 0)
  end
end

-- Reserves tickets: never at or below a ticket that the client has seen, and after a loss of data above the clock.
function rule.draw_tickets(block, floor)
  local tickets = 'lockfast:tickets'
  local last = redis.call('INCRBY', tickets, block)
  local first = last - block + 1
  if first <= floor or first <= @min_seed@ then
    local time = redis.call('TIME')
    local highest = math.max(floor, time[1] * 1000000 + time[2], last)
    redis.call('SET', tickets, rule.digits(highest + block))
    first = highest + 1
  end
  return rule.digits(first)
end

-- The text 'RECHECK POSITION': in how many milliseconds a waiter's client asks again, and how many entries are ahead.
--
-- The client asks again when the leases of the holder, of the first waiter and of the entry just ahead have ended. If the entries
-- in between are dead too, their eviction and a new recheck follow then. RECHECK is 'soon' if another program holds the key,
-- since its release publishes nothing, or if the client has no subscription.
function rule.recheck_and_position(claim)
  local longest, position, is_soon = 0, 0, claim.quiet
  for _, want in ipairs(claim.wants) do
    local queue, kind = rule.queue_of(want), rule.read_key(want.key)
    local rank = redis.call('ZRANK', queue, rule.entry_of(claim, want)) or 0
    -- The reader marker counts only for a writer that is first: a reader does not wait for it, and with entries ahead the records
    -- of the readers are read below.
    if kind == '@kind.claim@' or kind == '@kind.seal@' or kind == '@kind.readers@' and rank == 0 and rule.is_exclusive(want) then
      longest = math.max(longest, redis.call('PTTL', want.key))
    elseif kind and kind ~= '@kind.readers@' then
      -- Only the first waiter polls: the others wait for the entries ahead.
      is_soon = is_soon or rank == 0
    end
    if rank > 0 then
      local front = redis.call('ZRANGE', queue, 0, 0)[1]
      longest = math.max(longest, redis.call('PTTL', rule.record_of(rule.decode_entry(front))))
    end
    if rank > 1 then
      local ahead = redis.call('ZRANGE', queue, rank - 1, rank - 1)[1]
      longest = math.max(longest, redis.call('PTTL', rule.record_of(rule.decode_entry(ahead))))
    end
    position = math.max(position, (kind and kind ~= '@kind.readers@') and rank + 1 or rank)
  end
  return (is_soon and 'soon' or rule.digits(longest)) .. ' ' .. rule.digits(position)
end

-- Whether all keys and entries of a claim are still there: an administrator or an eviction by Redis may have deleted them.
function rule.is_whole(claim)
  for _, want in ipairs(claim.wants) do
    local kind, value = rule.read_key(want.key)
    if claim.held and rule.is_exclusive(want) then
      if kind ~= '@kind.claim@' or not rule.is_text_of(value, claim) then
        return false
      end
    else
      if not redis.call('ZSCORE', rule.queue_of(want), rule.entry_of(claim, want)) then
        return false
      end
      if claim.held and rule.is_reader(want) and kind ~= '@kind.readers@' and kind ~= nil then
        return false
      end
    end
  end
  return true
end

-- Renews a claim. A lease of 0 changes nothing: the caller only asks for the standing.
function rule.extend(claim, lease)
  if lease == 0 then
    return
  end
  if not (claim.held and rule.is_single_exclusive(claim)) then
    rule.raise_expiry(rule.record_of(claim), lease)
  end
  for _, want in ipairs(claim.wants) do
    if claim.held and rule.is_exclusive(want) then
      rule.raise_expiry(want.key, lease)
    else
      rule.raise_queue_expiry(want, lease)
      if claim.held and rule.is_reader(want) then
        rule.raise_reader_marker(want.key, lease)
      end
    end
  end
end

-- 'held FIRST COUNT' or 'waiting FIRST RECHECK POSITION'.
function rule.standing(claim)
  if claim.held then
    return 'held ' .. claim.first .. ' ' .. claim.count
  end
  return 'waiting ' .. claim.first .. ' ' .. rule.recheck_and_position(claim)
end

-- A failure as text: newer servers raise a table.
function rule.message_of(failure)
  return type(failure) == 'table' and failure.err or tostring(failure)
end

-- Whether the server has become a replica: no claim can be written, and the client has to reconnect.
function rule.is_of_a_replica(failure)
  return string.find(rule.message_of(failure), 'READONLY', 1, true)
end

-- Publishes the pushes, one message for each client. No decision depends on their arrival.
function rule.publish()
  for _, client in ipairs(rule.recipients) do
    redis.pcall('PUBLISH', 'lockfast:push:' .. client, table.concat(rule.pushes[client], '\n'))
  end
  rule.pushes, rule.recipients = {}, {}
  if next(rule.changed_keys) and redis.call('EXISTS', 'lockfast:watched') == 1 then
    for key in pairs(rule.changed_keys) do
      redis.pcall('PUBLISH', 'lockfast:lines', key)
    end
  end
  rule.changed_keys = {}
end
