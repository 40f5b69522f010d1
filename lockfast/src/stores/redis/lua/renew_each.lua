local function renew(claim, lease)
  local key = claim.wants[1].key
  if is_alone(claim) then
    local value = redis.call('GET', key)
    if value and string.sub(value, 1, 12) == 'lockfast1 x ' and is_of(value, claim) then
      local first, count, flags = string.match(value, '^ (%d+) (%d+) %x+ %w+ (%S+)', 13 + #claim.owner)
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

local answers, at, key = {}, 2, 0
while at <= #ARGV do
  local claim = {owner = ARGV[at], client = ARGV[at + 1], home = ARGV[at + 2], wants = {}}
  local lease, names = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  at = at + 5
  for index = 1, names do
    key = key + 1
    claim.wants[index] = {key = KEYS[key], tag = ARGV[at], weight = ARGV[at + 1], capacity = ARGV[at + 2]}
    at = at + 3
  end
  -- One key of another kind must not stop the others: what is not there any more is lost.
  local done, answer = pcall(renew, claim, lease)
  answers[#answers + 1] = done and answer or 'failed ' .. words_of(answer)
end
say()
return answers
