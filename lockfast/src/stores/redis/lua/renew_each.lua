local function renew(claim, lease)
  local known, why = rule.find(claim)
  if known and not known.held then
    -- Who holds goes on holding, whoever else is in line. What stands at one of the names is said by `is_whole`.
    pcall(rule.settle, claim.wants)
    -- It may have been handed over just now, with what was left of the lease it had.
    known, why = rule.find(claim)
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

for _, other in ipairs(others) do
  local words, claim, lease = ARGV[other.at], {}, usual
  if other.tag then
    claim.owner, claim.client, claim.home = string.sub(words, 13, 44), usual_client, other.tag
    claim.wants = {{key = KEYS[other.used + 1], tag = other.tag, weight = rule.ALL_WORD, capacity = rule.ALL_WORD}}
  else
    claim.owner, claim.client, claim.home, lease = string.match(words, '^(%x+) (%x+) (%w+) (%d+)$')
    rule.read_wants(claim, other.at + 1, other.used)
  end
  -- One key of another kind must not stop the others: what is not there any more is lost.
  local done, answer = pcall(renew, claim, tonumber(lease))
  if not done and rule.is_of_a_replica(answer) then
    return redis.error_reply('READONLY this server is a replica')
  end
  answers[other.number] = done and answer or 'failed ' .. rule.words_of(answer)
end
rule.say()
return answers
