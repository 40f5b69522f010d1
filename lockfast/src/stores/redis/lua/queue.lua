-- Iterates over the entries of a queue, and evicts dead ones.

-- Calls `visit` for each entry from the front. It returns 'stop' to end the visit, 'gone' for an entry that it evicted, otherwise
-- nothing. With `with_records`, it gets the record of each entry too, and one command reads many records.
function rule.each_entry(queue, visit, with_records)
  -- The first page is small: most visits end at the first or second entry.
  local from, size = 0, 2
  while true do
    local entries = redis.call('ZRANGE', queue, from, from + size - 1)
    local gone = 0
    local records = with_records and entries[1] and rule.records_of(entries)
    for index, entry in ipairs(entries) do
      local verdict = visit(entry, records and records[index])
      if verdict == 'stop' then
        return
      elseif verdict == 'gone' then
        gone = gone + 1
      end
    end
    if #entries < size then
      return
    end
    from, size = from + #entries - gone, 64
  end
end

-- Evicts a dead entry. Its client is notified: the client may live, and only its renewals did not arrive.
function rule.evict(queue, entry, claim, key)
  redis.call('ZREM', queue, entry)
  rule.push(claim.client, 'gone ' .. claim.owner)
  rule.changed_keys[key] = true
  rule.evicted = rule.evicted + 1
end

-- The records of entries, and their keys. A key of another type reads as no record.
function rule.records_of(entries)
  local keys = {}
  for index, entry in ipairs(entries) do
    keys[index] = 'lockfast:{' .. string.sub(entry, @entry.home@) .. '}:claim:' .. string.sub(entry, @entry.owner@)
  end
  return redis.call('MGET', unpack(keys)), keys
end

-- Whether the last living claim of the queue holds, and its weight. If it holds, all claims in the queue fit, and no hand-off is
-- due.
function rule.last_holds(want)
  local queue = rule.queue_of(want)
  while rule.evicted < @max_evicted@ do
    local entry = redis.call('ZRANGE', queue, -1, -1)[1]
    if not entry then
      return true
    end
    local owner, weight = rule.decode_entry(entry)
    local claim = rule.load(owner, want)
    if claim then
      return claim.held, weight
    end
    rule.evict(queue, entry, owner, want.key)
  end
  return false
end

-- Evicts the entries at the front that are dead, or whose client has no subscription and so cannot be notified of a grant. Ends
-- at the first other entry: the entries behind it are not next. Evicts many with one command: a whole process may have died.
function rule.sweep(want)
  -- The first page is small: most sweeps end at the first or second entry.
  local queue, size, sub = rule.queue_of(want), 2, string.sub
  while rule.evicted < @max_evicted@ do
    local entries, gone, unsubscribed = redis.call('ZRANGE', queue, 0, size - 1), {}, {}
    if not entries[1] then
      return
    end
    local records, keys = rule.records_of(entries)
    for index, entry in ipairs(entries) do
      local record, client = records[index], sub(entry, @entry.client@)
      if not record or sub(record, @tombstone.head@) == '@tombstone@' then
        if rule.is_subscribed(client) then
          rule.push(client, 'gone ' .. sub(entry, @entry.owner@))
        end
      -- A waiter that wants only this name, exclusively, and whose client had a subscription when it joined. `hand_off` decides
      -- about all other waiters.
      elseif sub(record, @value.beginning@) == '@claim@' .. sub(entry, @entry.identity@) .. ' - '
        and not rule.is_subscribed(client) then
        unsubscribed[#unsubscribed + 1] = keys[index]
      else
        break
      end
      gone[index] = entry
    end
    if unsubscribed[1] then
      redis.call('DEL', unpack(unsubscribed))
    end
    if gone[1] then
      redis.call('ZREM', queue, unpack(gone))
      rule.changed_keys[want.key] = true
      rule.evicted = rule.evicted + #gone
    end
    if #gone < size then
      return
    end
    size = 128
  end
end
