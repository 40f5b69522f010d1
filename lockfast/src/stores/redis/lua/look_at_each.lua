-- About as many as one call looks at.
local room = 200

local function words(claim, weight, lease)
  local flags = (claim.held and 'h' or '') .. (claim.lingers and 'l' or '') .. (claim.broken and 'b' or '')
  return {
    claim.owner, claim.first, claim.count, tostring(weight), flags,
    rule.digits(math.max(0, tonumber(now) - tonumber(claim.since))), tostring(lease), claim.note,
  }
end

-- Who stands at the key itself, before the line.
local function look_at_key(want, seats)
  local kind, value = rule.taken_by(want.key)
  if kind == 'd' then
    return redis.call('PTTL', want.key), 0
  elseif kind == 'x' then
    local claim = rule.read_value(value, want)
    claim = claim.several and rule.load(claim, want) or claim
    seats[1] = words(claim, rule.ALL, redis.call('PTTL', want.key))
  elseif kind and kind ~= 's' then
    seats[1] = {'foreign', tostring(redis.call('PTTL', want.key))}
  end
  return -1, seats[1] and rule.ALL or 0
end

-- The first of a line, or after those that were shown before and the number of the last of them, those that follow.
local function look(want, most, shown, last)
  if shown == 0 then
    rule.settle({want})
  end
  local line, seats = rule.line_of(want), {}
  local sealed, capacity = look_at_key(want, seats)
  -- Whoever stands at the key since the last piece, or was shown in it.
  if shown > 0 and seats[1] and not (tonumber(seats[1][2]) > tonumber(last)) then
    seats = {}
  end
  local following = redis.call('ZRANGEBYSCORE', line, '(' .. last, '+inf', 'WITHSCORES', 'LIMIT', 0, most - #seats)
  for index = 1, #following, 2 do
    local who, weight, agreed = rule.read_seat(following[index])
    local claim = rule.load(who, want)
    last = following[index + 1]
    if claim then
      capacity = agreed
      seats[#seats + 1] = words(claim, weight, redis.call('PTTL', rule.record_of(claim)))
    else
      rule.bury(line, following[index], who, want.key)
    end
  end
  room = room - 1 - #following / 2
  return {tostring(sealed), tostring(capacity), seats, tostring(redis.call('ZCOUNT', line, '(' .. last, '+inf'))}
end

local answers = {}
for index, key in ipairs(KEYS) do
  if room > 0 then
    local shown, last = 0, '0'
    if index == 1 then
      shown, last = before, after
    end
    local want = {key = key, tag = ARGV[index + 4]}
    local done, answer = pcall(look, want, math.min(wanted - shown, room), shown, last)
    answers[index] = done and answer or 'failed ' .. rule.words_of(answer)
  end
end
rule.say()
return answers
