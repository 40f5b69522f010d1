-- The mark of those who read.

-- Readers leave a mark at the key that lives as long as the longest of them.
function rule.mark_shared(key, lease)
  local mark = redis.call('PTTL', key)
  if mark == -2 then
    rule.put_at(key, 'lockfast1 s', lease)
  elseif mark < lease then
    redis.call('PEXPIRE', key, lease)
  end
end

-- The mark of those who read, when one of them left or lingers: as long as the longest of the others.
function rule.mark_anew(want)
  if rule.taken_by(want.key) ~= 's' then
    return
  end
  local longest = 0
  rule.each_seat(rule.line_of(want), function(seat)
    local who, weight = rule.read_seat(seat)
    if weight == rule.ALL then
      return 'stop'
    end
    -- One that waits for its turn on another name reads nothing yet.
    local claim = rule.load(who, want)
    if claim and claim.held then
      longest = math.max(longest, redis.call('PTTL', rule.record_of(claim)))
    end
  end)
  if longest > 0 then
    redis.call('PEXPIRE', want.key, longest)
  else
    rule.clear_at(want.key)
  end
end

-- Whether the mark of those who read is wrong when one of them has left: it was the last, or the mark lasts longer than the first of
-- the others could make it last by renewing now. One that waits for another name counts as well: while it stands in front, the
-- mark may be there for it alone.
function rule.is_mark_wrong(want)
  if rule.taken_by(want.key) ~= 's' then
    return false
  end
  rule.sweep(want)
  local front = redis.call('ZRANGE', rule.line_of(want), 0, 0)[1]
  local who, weight = rule.read_seat(front or '')
  if not front or weight == rule.ALL then
    return true
  end
  local first = rule.load(who, want)
  return not first or redis.call('PTTL', want.key) > tonumber(first.ttl)
end

-- The same when dead ones may have been taken out. A line that is not there without anybody's being taken out was removed by
-- somebody else: then the mark is all that readers have left.
function rule.mark_after(want, removed)
  if rule.removed > removed and rule.is_mark_wrong(want) then
    rule.mark_anew(want)
  end
end
