-- From now on its lease alone decides, whatever becomes of its client. Written over what is there, whose expiry stays.
local function detach(claim)
  claim.detached = true
  if claim.held and rule.is_alone(claim) then
    redis.call('SET', claim.wants[1].key, rule.value_of(claim), 'KEEPTTL')
    rule.seen[claim.wants[1].key] = nil
  else
    local record = rule.is_alone(claim) and rule.value_of(claim) or cmsgpack.pack(claim)
    redis.call('SET', rule.record_of(claim), record, 'KEEPTTL')
  end
end

local function renew(claim, lease)
  local known, why = rule.find(claim)
  if known and not known.held then
    -- Who holds goes on holding, whoever else is in line. What stands at one of the names is said by `is_whole`.
    pcall(rule.settle, claim.wants)
    -- It may have been handed over just now, with what was left of the lease it had.
    known, why = rule.find(claim)
  end
  if not known then
    return 'gone ' .. why
  elseif known.broken then
    return 'gone broken'
  elseif known.lingers then
    return 'gone left'
  elseif not rule.is_whole(known) then
    rule.forget(known)
    rule.settle({})
    return 'gone unknown'
  end
  rule.extend(known, lease)
  if claim.detach and not known.detached then
    detach(known)
  end
  listing.list_detached(known, lease)
  return rule.standing(known)
end

-- One key of another kind must not stop the others: what is not there any more is lost.
local is_replica = false
local function answer(index, claim, span)
  local done, standing = pcall(renew, claim, span)
  is_replica = is_replica or not done and rule.is_of_a_replica(standing)
  answers[index] = done and standing or 'failed ' .. rule.words_of(standing)
end

for _, index in ipairs(others) do
  local begins = ARGV[index + 3]
  local claim = {owner = string.sub(begins, 13, 44), client = string.sub(begins, 46, 61), home = string.sub(begins, 63, 65)}
  claim.wants = {{key = KEYS[index], tag = claim.home, weight = rule.ALL_WORD, capacity = rule.ALL_WORD}}
  answer(index, claim, lease)
end
local at, used = most + 4, most
while at <= #ARGV do
  local claim, span, flag = {}, nil, nil
  claim.owner, claim.client, claim.home, span, flag = string.match(ARGV[at], '^(%x+) (%x+) (%w+) (%d+) ?(d?)$')
  claim.detach = flag == 'd'
  at, used = read_wants(claim, at + 1, used)
  answer(#answers + 1, claim, tonumber(span))
end
if is_replica then
  return redis.error_reply('READONLY this server is a replica')
end
rule.say()
return answers
