local function words(claim, weight, lease)
  local flags = (claim.held and 'h' or '') .. (claim.lingers and 'l' or '') .. (claim.broken and 'b' or '')
  return {
    claim.owner, claim.first, claim.count, tostring(weight), flags,
    rule.digits(math.max(0, tonumber(now) - tonumber(claim.since))), tostring(lease), claim.note,
  }
end

local function look(want)
  rule.settle({want})
  local kind, value = rule.taken_by(want.key)
  local sealed, capacity, seats = -1, 0, {}
  if kind == 'd' then
    sealed = redis.call('PTTL', want.key)
  elseif kind == 'x' then
    local claim = rule.read_value(value, want)
    claim = claim.several and rule.load(claim, want) or claim
    capacity = rule.ALL
    seats[1] = words(claim, rule.ALL, redis.call('PTTL', want.key))
  elseif kind and kind ~= 's' then
    capacity = rule.ALL
    seats[1] = {'foreign', tostring(redis.call('PTTL', want.key))}
  end
  local line = rule.line_of(want)
  for _, seat in ipairs(redis.call('ZRANGE', line, 0, -1)) do
    local who, weight, agreed = rule.read_seat(seat)
    local claim = rule.load(who, want)
    if claim then
      capacity = agreed
      seats[#seats + 1] = words(claim, weight, redis.call('PTTL', rule.record_of(claim)))
    else
      rule.bury(line, seat, who, want.key)
    end
  end
  return {tostring(sealed), tostring(capacity), seats}
end

local answers = {}
for index, key in ipairs(KEYS) do
  local done, answer = pcall(look, {key = key, tag = ARGV[index + 1]})
  answers[index] = done and answer or 'failed ' .. rule.words_of(answer)
end
rule.say()
return answers
