-- Lets time pass in one database: shifts all times that were derived from a clock.
--
-- ARGV  1 the span, in milliseconds
--       2 the unit, in milliseconds: every lease and every age is rounded to a multiple of it, which takes back the real time that
--         has passed
local span, unit = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The nearest multiple of the unit.
local function rounded(millis)
  return math.floor(millis / unit + 0.5) * unit
end

-- A stored instant in the past, `span` earlier.
local function shifted(instant)
  return string.format('%013.0f', now - rounded(now - tonumber(instant)) - span)
end

for _, key in ipairs(redis.call('KEYS', '*')) do
  local left = redis.call('PTTL', key)
  if left >= 0 then
    left = rounded(left) - span
    if left <= 0 then
      redis.call('DEL', key)
    else
      redis.call('PEXPIRE', key, left)
    end
  end
  local kind = redis.call('TYPE', key).ok
  if kind == 'string' then
    local value = redis.call('GET', key)
    local beginning, since, ending = string.match(value, '^(lockfast1 x %x+ %x+ %w+ %S+ )(%d+)( .*)$')
    local is_packed, claim = false, nil
    if string.find(key, '}:claim:', 1, true) and not since and string.sub(value, 1, 5) ~= 'gone ' then
      is_packed, claim = pcall(cmsgpack.unpack, value)
    end
    if since then
      redis.call('SET', key, beginning .. shifted(since) .. ending, 'KEEPTTL')
    elseif is_packed then
      claim.since = shifted(claim.since)
      redis.call('SET', key, cmsgpack.pack(claim), 'KEEPTTL')
    end
  elseif key == 'lockfast:leases:detached' or key == 'lockfast:listings' then
    local members = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for index = 1, #members, 2 do
      redis.call('ZADD', key, string.format('%.0f', now + rounded(tonumber(members[index + 1]) - now) - span), members[index])
    end
  end
end
