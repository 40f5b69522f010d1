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
  local at, used, alone = 5, 0, 0
  while at <= #ARGV do
    local words = ARGV[at]
    local is_alone = sub(words, 1, 12) == 'lockfast1 x '
    local other = {number = #answers + 1, at = at, used = used}
    if is_alone then
      alone = alone + 1
      local key = KEYS[used + 1]
      local value = pcall('GET', key)
      if type(value) == 'string' and sub(value, 1, #words) == words then
        if not (knows_gt and call('PEXPIRE', key, usual, 'GT') == 1) and call('PTTL', key) < usual then
          call('PEXPIRE', key, usual)
        end
        answers[#answers + 1], other = value, nil
      end
      at, used = at + 1, used + 1
    else
      local names = ARGV[at + 1] == 'x' and 1 or tonumber(ARGV[at + 1])
      at, used = at + (ARGV[at + 1] == 'x' and 2 or 2 + 3 * names), used + names
    end
    if other then
      other.tag = is_alone and sub(tags, 3 * alone - 2, 3 * alone)
      answers[other.number], others[#others + 1] = '', other
    end
  end
  if #others == 0 then
    return answers
  end
end
