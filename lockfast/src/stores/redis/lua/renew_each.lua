local function renew(claim, lease)
  local key = claim.wants[1].key
  if rule.is_alone(claim) then
    local kind, value = rule.taken_by(key)
    if kind == 'x' and rule.is_of(value, claim) then
      local known = rule.read_value(value, claim.wants[1])
      if known.broken then
        return 'gone broken'
      elseif known.lingers then
        return 'gone left'
      end
      rule.raise(key, lease)
      listing.list_detached(known, lease)
      return rule.standing(known)
    end
  end
  local known, why = rule.load(claim)
  if known and not known.held then
    -- Who holds goes on holding, whoever else is in line. What stands at one of the names is said by `is_whole`.
    pcall(rule.settle, claim.wants)
    known, why = rule.load(claim)
  end
  if not known and rule.is_alone(claim) then
    -- It may have been handed over just now, with what was left of the lease it had.
    local kind, value = rule.taken_by(key)
    if kind == 'x' and rule.is_of(value, claim) then
      rule.raise(key, lease)
      known = rule.read_value(value, claim.wants[1])
      listing.list_detached(known, lease)
      return rule.standing(known)
    end
  end
  if not known then
    return 'gone ' .. why
  elseif known.broken then
    return 'gone broken'
  elseif known.lingers then
    return 'gone left'
  elseif not rule.is_whole(known) then
    rule.forget(known)
    rule.settle({})
    return 'gone unknown'
  end
  rule.extend(known, lease)
  listing.list_detached(known, lease)
  return rule.standing(known)
end

-- What most renewals are: one name, held alone by who asks. No line is looked at, since nothing can be granted. The answer is
-- what stands at the key.
local function renew_at_once(key, words)
  local value = redis.pcall('GET', key)
  if type(value) ~= 'string' or string.sub(value, 1, 12) ~= 'lockfast1 x ' then
    return nil
  end
  -- The owner has 32 digits, and a holder about whom there is nothing to say a dash behind it.
  if string.sub(value, 13, 44) ~= string.sub(words, 2, 33) or string.sub(value, 45, 47) ~= ' - ' then
    return nil
  end
  if not rule.KNOWS_GT or redis.call('PEXPIRE', key, usual, 'GT') == 0 then
    rule.raise(key, usual)
  end
  return value
end

local answers, at, used = {}, 3, 0
while at <= #ARGV do
  local words, is_alone = ARGV[at], string.sub(ARGV[at], 1, 1) == 'x'
  local answer = is_alone and renew_at_once(KEYS[used + 1], words)
  if answer then
    at, used = at + 1, used + 1
  else
    local owner, client, home, lease = string.match(words, '^x?(%x+) (%x+) (%w+) ?(%d*)$')
    local claim, done = {owner = owner, client = client, home = home}, nil
    if is_alone then
      claim.wants = {{key = KEYS[used + 1], tag = home, weight = rule.ALL_WORD, capacity = rule.ALL_WORD}}
      at, used = at + 1, used + 1
    else
      at, used = rule.read_wants(claim, at + 1, used)
    end
    -- One key of another kind must not stop the others: what is not there any more is lost.
    done, answer = pcall(renew, claim, tonumber(lease) or usual)
    if not done and rule.is_of_a_replica(answer) then
      return redis.error_reply('READONLY this server is a replica')
    end
    answer = done and answer or 'failed ' .. rule.words_of(answer)
  end
  answers[#answers + 1] = answer
end
rule.say()
return answers
