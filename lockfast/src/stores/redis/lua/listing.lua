-- Listings: which claims stand in which lines, for people. No verb depends on them, or fails because of them.
--
--   lockfast:listing:C      a sorted set of names and owners, in the order of names: the claims of the client C
--   lockfast:listing:detached, lockfast:leases:detached
--                           the same for claims that no client keeps, and when the lease of each ends

local listing = {
  -- How many claims whose lease has ended are taken out at once: more than any call puts in.
  MOST_UNLISTED = 200,
}

-- No byte of a name is the second of these two, and all digits of an owner are below it: so a name comes before all longer
-- ones that begin with it, whatever follows there.
function listing.escaped(name)
  return (string.gsub(name, '%z', '\0\255'))
end

function listing.entry_of(name, owner)
  return listing.escaped(name) .. '\0' .. owner
end

function listing.name_of(entry)
  local name = string.sub(entry, 1, -34)
  -- Few names have such a byte, and looking for it costs less than replacing it.
  if string.find(name, '\0', 1, true) then
    name = string.gsub(name, '%z\255', '\0')
  end
  return name
end

function listing.clock()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Takes out detached claims that ended without anybody's doing.
function listing.unlist_ended()
  local now, most = string.format('(%.0f', listing.clock()), listing.MOST_UNLISTED
  local ended = redis.pcall('ZRANGEBYSCORE', 'lockfast:leases:detached', '-inf', now, 'LIMIT', 0, most)
  for _, entry in ipairs(ended) do
    redis.pcall('ZREM', 'lockfast:leases:detached', entry)
    redis.pcall('ZREM', 'lockfast:listing:detached', entry)
  end
end

-- Lists a claim, if no client does, for at least this much longer.
function listing.list_detached(claim, lease)
  if not claim.detached then
    return
  end
  listing.unlist_ended()
  for _, want in ipairs(claim.wants) do
    local entry = listing.entry_of(want.key, claim.owner)
    redis.pcall('ZADD', 'lockfast:leases:detached', 'GT', string.format('%.0f', listing.clock() + lease), entry)
    redis.pcall('ZADD', 'lockfast:listing:detached', 0, entry)
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
      local entry = listing.entry_of(want.key, claim.owner)
      redis.pcall('ZREM', 'lockfast:leases:detached', entry)
      redis.pcall('ZREM', 'lockfast:listing:detached', entry)
    end
  end
end

