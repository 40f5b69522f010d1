-- renew: for each claim, says where it stands and lets it live at least this much longer. Never joins.
--
-- KEYS: the names of all claims, one claim after the other.
-- ARGV: now; how much longer and whose claims, for most; the tags of the names of those, three letters each. Then for each of
-- most, who want one name alone, what its value begins with while it holds: 'lockfast1 x OWNER - '. For others 'OWNER CLIENT
-- HOME LEASE', and what they want of their names. Few words, since each costs as much as a look.
local now, usual, usual_client, tags = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local knows_gt = (redis.REDIS_VERSION_NUM or 0) >= 0x00070000
local answers, others = {}, {}

-- What most renewals are, before the rule is even read: one name, held alone by who asks. No line is looked at, since nothing
-- can be granted. The answer is what stands at the key.
do
  local call, pcall, sub = redis.call, redis.pcall, string.sub
  local at, used, alone, number = 5, 0, 0, 0
  while at <= #ARGV do
    local words, key = ARGV[at], KEYS[used + 1]
    local is_alone = sub(words, 1, 12) == 'lockfast1 x '
    local value = is_alone and pcall('GET', key)
    number = number + 1
    if type(value) == 'string' and sub(value, 1, #words) == words then
      if not (knows_gt and call('PEXPIRE', key, ARGV[2], 'GT') == 1) and call('PTTL', key) < usual then
        call('PEXPIRE', key, usual)
      end
      answers[number] = value
    else
      local tag = is_alone and sub(tags, 3 * alone + 1, 3 * alone + 3)
      answers[number], others[#others + 1] = '', {number = number, at = at, used = used, tag = tag}
    end
    if is_alone then
      at, used, alone = at + 1, used + 1, alone + 1
    elseif ARGV[at + 1] == 'x' then
      at, used = at + 2, used + 1
    else
      local names = tonumber(ARGV[at + 1])
      at, used = at + 2 + 3 * names, used + names
    end
  end
  if #others == 0 then
    return answers
  end
end
