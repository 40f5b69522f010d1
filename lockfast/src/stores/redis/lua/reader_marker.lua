-- The reader marker: what readers leave at the plain key, for as long as the longest of their leases.

-- Makes the marker last at least `lease` milliseconds longer.
function rule.raise_reader_marker(key, lease)
  -- -2: there is no key.
  local left = redis.call('PTTL', key)
  if left == -2 then
    rule.set_key(key, '@readers@', lease)
  elseif left < lease then
    redis.call('PEXPIRE', key, lease)
  end
end

-- Makes the marker end with the longest lease of the readers that hold; without any, it is deleted.
function rule.rewrite_reader_marker(want)
  if rule.read_key(want.key) ~= '@kind.readers@' then
    return
  end
  local longest = 0
  rule.each_entry(rule.queue_of(want), function(entry)
    local owner, weight = rule.decode_entry(entry)
    if weight == rule.ALL then
      return 'stop'
    end
    -- A reader that waits for another name does not count.
    local claim = rule.load(owner, want)
    if claim and claim.held then
      longest = math.max(longest, redis.call('PTTL', rule.record_of(claim)))
    end
  end)
  if longest > 0 then
    redis.call('PEXPIRE', want.key, longest)
  else
    rule.delete_key(want.key)
  end
end

-- Whether the marker may be wrong once a reader has left: that reader was the last, or the marker lasts longer than a renewal of
-- the first reader in the queue would make it last. The first reader counts even if it waits for another name: then no reader may
-- hold.
function rule.is_reader_marker_wrong(want)
  if rule.read_key(want.key) ~= '@kind.readers@' then
    return false
  end
  rule.sweep(want)
  local front = redis.call('ZRANGE', rule.queue_of(want), 0, 0)[1]
  local owner, weight = rule.decode_entry(front or '')
  if not front or weight == rule.ALL then
    return true
  end
  local first = rule.load(owner, want)
  return not first or redis.call('PTTL', want.key) > tonumber(first.ttl)
end

-- Mends the marker if entries were evicted since the caller read `rule.evicted` as `evicted`. A queue that is missing although no
-- entry was evicted was deleted by another program: then the marker is the only trace of its readers, and stays.
function rule.mend_reader_marker(want, evicted)
  if rule.evicted > evicted and rule.is_reader_marker_wrong(want) then
    rule.rewrite_reader_marker(want)
  end
end
