-- The rest of renew, by the rule: the common claims in `others`, which do not hold without flags, and all other claims.

-- Detaches a claim: from now on it lives as long as its lease, with or without its client. The expiry stays.
local function detach(claim)
  claim.detached = true
  if claim.held and rule.is_alone(claim) then
    redis.call('SET', claim.wants[1].key, rule.encode(claim), 'KEEPTTL')
    rule.cached[claim.wants[1].key] = nil
  else
    local record = rule.is_alone(claim) and rule.encode(claim) or cmsgpack.pack(claim)
    redis.call('SET', rule.record_of(claim), record, 'KEEPTTL')
  end
end

local function renew(claim, lease)
  local known, why = rule.find(claim)
  if known and not known.held then
    -- A holder needs no settled queue: it keeps holding. The keys of a waiter are checked by `is_whole`.
    pcall(rule.settle, claim.wants)
    -- It may have been granted just now, with the rest of its lease.
    known, why = rule.find(claim)
  end
  if not known then
    return 'gone ' .. why
  elseif known.broken then
    return 'gone broken'
  elseif known.lingers then
    return 'gone left'
  elseif not rule.is_whole(known) then
    rule.remove(known)
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

-- A key of another type fails one claim and not the others of its batch.
local is_replica = false
local function reply_to(index, claim, lease)
  local done, standing = pcall(renew, claim, lease)
  is_replica = is_replica or not done and rule.is_of_a_replica(standing)
  replies[index] = done and standing or 'failed ' .. rule.message_of(standing)
end

for _, index in ipairs(others) do
  local beginning = ARGV[index + 3]
  local claim = {
    owner = string.sub(beginning, @value.owner@), client = string.sub(beginning, @value.client@),
    home = string.sub(beginning, @value.home@),
  }
  claim.wants = {{key = KEYS[index], tag = claim.home, weight = rule.ALL_TEXT, capacity = rule.ALL_TEXT}}
  reply_to(index, claim, lease)
end
local at, used = common + 4, common
while at <= #ARGV do
  local claim, span, flag = {}, nil, nil
  claim.owner, claim.client, claim.home, span, flag = string.match(ARGV[at], '^(%x+) (%x+) (%w+) (%d+) ?(d?)$')
  claim.detach = flag == 'd'
  at, used = decode_demands(claim, at + 1, used)
  reply_to(#replies + 1, claim, tonumber(span))
end
if is_replica then
  return redis.error_reply('READONLY this server is a replica')
end
rule.publish()
return replies
