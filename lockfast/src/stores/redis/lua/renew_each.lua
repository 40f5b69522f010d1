-- The second half of the script renew, by the rule: the common claims with an index in `others`, which the fast path has not
-- renewed, and all claims that are not common.

-- Detaches a claim: from now on it lives as long as its lease, with or without its client. The expiry stays.
local function detach(claim)
  claim.detached = true
  if claim.held and rule.is_single_exclusive(claim) then
    redis.call('SET', claim.wants[1].key, rule.encode(claim), 'KEEPTTL')
    rule.cached[claim.wants[1].key] = nil
  else
    local record = rule.is_single_exclusive(claim) and rule.encode(claim) or cmsgpack.pack(claim)
    redis.call('SET', rule.record_of(claim), record, 'KEEPTTL')
  end
end

local function renew(claim, lease)
  local stored, why = rule.find(claim)
  if stored and not stored.held then
    -- A holder needs no settled queue: it keeps holding. The keys of a waiter are checked by `is_whole`.
    pcall(rule.settle, claim.wants)
    -- It may have been granted just now, with the rest of its lease.
    stored, why = rule.find(claim)
  end
  if not stored then
    return 'gone ' .. why
  elseif stored.broken then
    return 'gone broken'
  elseif stored.lingers then
    return 'gone left'
  elseif not rule.is_whole(stored) then
    rule.remove(stored)
    rule.settle({})
    return 'gone unknown'
  end
  rule.extend(stored, lease)
  if claim.detach and not stored.detached then
    detach(stored)
  end
  listing.list_detached(stored, lease)
  return rule.standing(stored)
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
local at, used = common_count + 4, common_count
while at <= #ARGV do
  local claim, own_lease, flag = {}, nil, nil
  claim.owner, claim.client, claim.home, own_lease, flag = string.match(ARGV[at], '^(%x+) (%x+) (%w+) (%d+) ?(d?)$')
  claim.detach = flag == 'd'
  at, used = decode_demands(claim, at + 1, used)
  reply_to(#replies + 1, claim, tonumber(own_lease))
end
if is_replica then
  return redis.error_reply('READONLY this server is a replica')
end
rule.publish()
return replies
