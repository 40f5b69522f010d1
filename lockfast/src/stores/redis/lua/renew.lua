-- renew: for each claim, says where it stands and lets it live at least this much longer. Never joins.
--
-- KEYS: the names of all claims, one claim after the other.
-- ARGV: now; how much longer for most; how many those are, who want one name alone, and come first. For each of them what its
-- value begins with while it holds. For each other 'OWNER CLIENT HOME LEASE', with ' d' behind it if the claim is to be
-- detached, and what it wants of its names. Few words, since each costs as much as a look.
local now, span, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local lease = tonumber(span)
local answers, others = {}, {}

-- What most renewals are, before the rule is even read: one name, held alone by who asks. No line is looked at, since nothing
-- can be granted. The answer is what stands at the key: a line for each, since many words would cost more.
if most > 0 then
  local call, find = redis.call, string.find
  local knows_gt = (redis.REDIS_VERSION_NUM or 0) >= 0x00070000
  -- The moment and not the span, which Redis would make a moment of each time. As text, since a number would be written out for
  -- each.
  local time = call('TIME')
  local ends = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + lease)
  -- What is of another kind reads as nothing here.
  answers = call('MGET', unpack(KEYS, 1, most))
  for index = 1, most do
    local value = answers[index]
    if value and find(value, ARGV[index + 3], 1, true) == 1 then
      local key = KEYS[index]
      -- Without a span it is only a question. Where the moment does not lengthen it, what remains is asked for and the span is
      -- set: the clock may have gone on since it was read, and no verb shortens a lease.
      if lease > 0 and not (knows_gt and call('PEXPIREAT', key, ends, 'GT') == 1) and call('PTTL', key) < lease then
        call('PEXPIRE', key, span)
      end
    else
      others[#others + 1] = index
    end
  end
  if #others == 0 and #ARGV == most + 3 then
    return table.concat(answers, '\n')
  end
end
