local function renew(claim, lease)
  local key = claim.wants[1].key
  if is_alone(claim) then
    local kind, value = taken_by(key)
    if kind == 'x' and is_of(value, claim) then
      local known = read_value(value, claim.wants[1])
      if known.broken then
        return 'gone broken'
      elseif known.lingers then
        return 'gone left'
      end
      raise(key, lease)
      list_detached(known, lease)
      return standing(known)
    end
  end
  local known, why = load(claim)
  if known and not known.held then
    -- Who holds goes on holding, whoever else is in line. What stands at one of the names is said by `is_whole`.
    pcall(settle, claim.wants)
    known, why = load(claim)
  end
  if not known and is_alone(claim) then
    -- It may have been handed over just now, with what was left of the lease it had.
    local kind, value = taken_by(key)
    if kind == 'x' and is_of(value, claim) then
      raise(key, lease)
      known = read_value(value, claim.wants[1])
      list_detached(known, lease)
      return standing(known)
    end
  end
  if not known then
    return 'gone ' .. why
  elseif known.broken then
    return 'gone broken'
  elseif known.lingers then
    return 'gone left'
  elseif not is_whole(known) then
    forget(known)
    settle({})
    return 'gone unknown'
  end
  extend(known, lease)
  list_detached(known, lease)
  return standing(known)
end

-- What most renewals are: one name, held alone by who asks. No line is looked at, since nothing can be granted.
local function renew_at_once(key, owner, lease)
  local value, own = redis.pcall('GET', key), 'lockfast1 x ' .. owner .. ' - '
  if type(value) ~= 'string' or string.sub(value, 1, #own) ~= own then
    return nil
  end
  if not KNOWS_GT or redis.call('PEXPIRE', key, lease, 'GT') == 0 then
    raise(key, lease)
  end
  return 'held ' .. string.match(value, '^%d+ %d+', #own + 1)
end

local answers, at, used = {}, 2, 0
while at <= #ARGV do
  local lease, owner = tonumber(ARGV[at]), ARGV[at + 1]
  local answer = ARGV[at + 4] == 'x' and renew_at_once(KEYS[used + 1], owner, lease)
  if answer then
    at, used = at + 5, used + 1
  else
    local claim, done = {owner = owner, client = ARGV[at + 2], home = ARGV[at + 3]}, nil
    at, used = read_wants(claim, at + 4, used)
    -- One key of another kind must not stop the others: what is not there any more is lost.
    done, answer = pcall(renew, claim, lease)
    if not done and is_of_a_replica(answer) then
      return redis.error_reply('READONLY this server is a replica')
    end
    answer = done and answer or 'failed ' .. words_of(answer)
  end
  answers[#answers + 1] = answer
end
say()
return answers
