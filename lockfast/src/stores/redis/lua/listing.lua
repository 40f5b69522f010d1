-- Listings: which claims have an entry in which queues, for display. No verb depends on them, or fails because of them.
--
--   lockfast:listing:C      a sorted set of members, each a name and an owner, in the order of names: the claims of the client C
--   lockfast:listing:detached, lockfast:leases:detached
--                           the same for detached claims, and when the lease of each ends, in milliseconds

local listing = {}

-- Escapes the zero bytes of a name by a byte 255 behind each. No name contains the byte 255, and all digits of an owner are below
-- it: so the members of a name sort before those of all longer names that begin with it.
function listing.escaped(name)
  return (string.gsub(name, '%z', '\0\255'))
end

function listing.member_of(name, owner)
  return listing.escaped(name) .. '\0' .. owner
end

function listing.name_of(member)
  local name = string.sub(member, @member.name@)
  -- Few names have a zero byte, and finding it costs less than replacing it.
  if string.find(name, '\0', 1, true) then
    name = string.gsub(name, '%z\255', '\0')
  end
  return name
end

function listing.clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Unlists detached claims whose lease has ended. Its limit is above what one call lists, so that they do not accumulate.
function listing.unlist_ended()
  local now = string.format('(%.0f', listing.clock())
  local ended = redis.pcall('ZRANGEBYSCORE', 'lockfast:leases:detached', '-inf', now, 'LIMIT', 0, @max_unlisted@)
  for _, member in ipairs(ended) do
    redis.pcall('ZREM', 'lockfast:leases:detached', member)
    redis.pcall('ZREM', 'lockfast:listing:detached', member)
  end
end

-- Lists a detached claim until at least `lease` milliseconds from now.
function listing.list_detached(claim, lease)
  if not claim.detached then
    return
  end
  listing.unlist_ended()
  for _, want in ipairs(claim.wants) do
    local member = listing.member_of(want.key, claim.owner)
    redis.pcall('ZADD', 'lockfast:leases:detached', 'GT', string.format('%.0f', listing.clock() + lease), member)
    redis.pcall('ZADD', 'lockfast:listing:detached', 0, member)
  end
  for _, key in ipairs({'lockfast:leases:detached', 'lockfast:listing:detached'}) do
    if redis.call('PTTL', key) < lease then
      redis.call('PEXPIRE', key, lease)
    end
  end
end

function listing.unlist(claim)
  if claim.detached then
    for _, want in ipairs(claim.wants) do
      local member = listing.member_of(want.key, claim.owner)
      redis.pcall('ZREM', 'lockfast:leases:detached', member)
      redis.pcall('ZREM', 'lockfast:listing:detached', member)
    end
  end
end
