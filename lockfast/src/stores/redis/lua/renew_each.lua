local function renew(claim, lease)
  local key = claim.wants[1].key
  if is_alone(claim) then
    local kind, value = taken_by(key)
    if kind == 'x' and is_of(value, claim) then
      local flags, first, count = string.match(value, '^ (%S+) (%d+) (%d+)', 13 + #claim.owner)
      if string.find(flags, 'b', 1, true) then
        return 'gone broken'
      elseif string.find(flags, 'l', 1, true) then
        return 'gone left'
      end
      raise(key, lease)
      return 'held ' .. first .. ' ' .. count
    end
  end
  if redis.call('EXISTS', record_of(claim)) == 1 then
    settle(claim.wants)
  end
  local known, why = load(claim)
  if not known and is_alone(claim) then
    -- It may have been handed over just now, with what was left of the lease it had.
    local kind, value = taken_by(key)
    if kind == 'x' and is_of(value, claim) then
      raise(key, lease)
      return standing(read_value(value, claim.wants[1]))
    end
  end
  if not known then
    return 'gone ' .. why
  elseif known.broken then
    return 'gone broken'
  elseif known.lingers then
    return 'gone left'
  elseif not is_whole(known) then
    forget(known)
    settle({})
    return 'gone unknown'
  end
  extend(known, lease)
  return standing(known)
end

local answers, at, used = {}, 2, 0
while at <= #ARGV do
  local lease = tonumber(ARGV[at])
  local claim = {owner = ARGV[at + 1], client = ARGV[at + 2], home = ARGV[at + 3]}
  at, used = read_wants(claim, at + 4, used)
  -- One key of another kind must not stop the others: what is not there any more is lost.
  local done, answer = pcall(renew, claim, lease)
  answers[#answers + 1] = done and answer or 'failed ' .. words_of(answer)
end
say()
return answers
