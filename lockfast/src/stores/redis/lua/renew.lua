-- renew: each claim lives at least its lease longer, and the reply has its standing. A claim never joins by it.
--
-- KEYS  the names of all claims, one claim after the other
-- ARGV  1 now, in milliseconds, 13 digits; shown to people, never compared
--       2 the lease of the common claims, in milliseconds; 0 only asks for the standing
--       3 how many common claims there are: they want one name alone, have the lease of 2, and come first
--       4.. for each common claim its text up to SINCE, without flags
--       .. for each other claim 'OWNER CLIENT HOME LEASE', with ' d' behind it to make it detached; and its demands, see demands.lua.
--       Few arguments: each costs as much as a lookup
-- Reply if all claims are common and hold, their texts, one a line; otherwise for each claim its text, if it is a common one that holds,
--       or 'held FIRST COUNT', 'waiting FIRST RECHECK POSITION', 'gone WHY' or 'failed MESSAGE'
local now, span, common = ARGV[1], ARGV[2], tonumber(ARGV[3])
local lease = tonumber(span)
local replies, others = {}, {}

-- The fast path, before the rule is defined: claims that hold one name alone. No queue is read, since no hand-off can be due.
if common > 0 then
  local call, find = redis.call, string.find
  local knows_gt = (redis.REDIS_VERSION_NUM or 0) >= 0x00070000
  -- An instant and not a span, which Redis would turn into an instant for each key. As text, since a number would be written out for
  -- each.
  local time = call('TIME')
  local ends = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + lease)
  -- A key of another type reads as nothing here.
  replies = call('MGET', unpack(KEYS, 1, common))
  for index = 1, common do
    local value = replies[index]
    if value and find(value, ARGV[index + 3], 1, true) == 1 then
      local key = KEYS[index]
      -- Where the instant does not lengthen the lease, the rest of the lease decides and the span is set: the clock may have gone on
      -- since it was read, and no verb shortens a lease.
      if lease > 0 and not (knows_gt and call('PEXPIREAT', key, ends, 'GT') == 1) and call('PTTL', key) < lease then
        call('PEXPIRE', key, span)
      end
    else
      others[#others + 1] = index
    end
  end
  if #others == 0 and #ARGV == common + 3 then
    return table.concat(replies, '\n')
  end
end
