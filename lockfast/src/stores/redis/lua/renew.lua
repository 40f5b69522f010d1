-- renew: each claim lives at least its lease longer, and the reply has its standing. A claim never joins by it.
--
-- KEYS  the names of all claims, one claim after the other
-- ARGV  1 now, in milliseconds, 13 digits; shown to people, never compared
--       2 the lease of the common claims, in milliseconds; 0 only asks for the standing
--       3 how many common claims there are: claims that want one name, exclusively, and have the lease of 2. They come first
--       4.. for each common claim its text up to SINCE, without flags
--       .. for each other claim 'OWNER CLIENT HOME LEASE', with ' d' behind it to make it detached; and its demands, see demands.lua.
--       Few arguments: each costs as much as a lookup
-- Reply if all claims are common and hold, their texts, one a line; otherwise for each claim its text, if it is a common one that holds,
--       or 'held FIRST COUNT', 'waiting FIRST RECHECK POSITION', 'gone WHY' or 'failed MESSAGE'
local now, lease_text, common_count = ARGV[1], ARGV[2], tonumber(ARGV[3])
local lease = tonumber(lease_text)
local replies, others = {}, {}

-- The fast path, before the rule is defined: claims that hold one name, exclusively. No queue is read, since no hand-off can be
-- due.
if common_count > 0 then
  local call, find = redis.call, string.find
  local supports_gt = (redis.REDIS_VERSION_NUM or 0) >= 0x00070000
  -- An expiry time and not a lease, which Redis would add to its clock for each key. As text, since a number would be formatted for
  -- each key.
  local time = call('TIME')
  local expires_at = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + lease)
  -- A key of another type reads as nothing here.
  replies = call('MGET', unpack(KEYS, 1, common_count))
  for index = 1, common_count do
    local value = replies[index]
    if value and find(value, ARGV[index + 3], 1, true) == 1 then
      local key = KEYS[index]
      -- If the expiry time does not lengthen the lease, the rest of the lease is compared and the lease is set: the clock may have
      -- gone on since it was read, and no verb shortens a lease.
      if lease > 0 and not (supports_gt and call('PEXPIREAT', key, expires_at, 'GT') == 1) and call('PTTL', key) < lease then
        call('PEXPIRE', key, lease_text)
      end
    else
      others[#others + 1] = index
    end
  end
  if #others == 0 and #ARGV == common_count + 3 then
    return table.concat(replies, '\n')
  end
end
