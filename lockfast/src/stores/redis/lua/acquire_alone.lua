-- acquire_alone: a claim that wants one name, exclusively, joins the name's queue. A claim that has joined before is renewed
-- instead.
--
-- KEYS  1 the name, 2 its queue, 3 the claim's record
-- ARGV  1 the claim's text up to and including SINCE and the blank behind it, without flags
--       2 the rest of its text behind FIRST, with the blank before it: ' COUNT TTL NOTE'
--       3 the lease, in milliseconds
--       4 the floor: the ticket has to be above it
--       5 flags, absent for most claims: 'r' refuse instead of waiting, 'q' the client has no subscription
--       6 with 5: how many tickets the claim reserves
-- Reply 'FIRST', the ticket of a claim that holds; {FIRST, recheck, position}, the ticket of one that waits, milliseconds until
--       its client asks again, and how many entries are ahead; or as of acquire, see acquire.lua
local key, queue, record = KEYS[1], KEYS[2], KEYS[3]
local beginning, ending, ttl, floor, flags, block = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

-- The fast path, before the rule is defined: a definition costs time even if it is not called. Numbers stay text: formatting one
-- costs as much as a command.
if not flags then
  local call, sub = redis.call, string.sub
  -- A name without a holder is free only if its queue is empty too. If this claim has a record, it has joined before, or the
  -- record is its tombstone.
  local is_free, must_wait = call('EXISTS', key, queue, record, 'lockfast:watched') == 0, false
  if not is_free then
    -- While another claim holds the name exclusively, no hand-off is due and a new claim becomes the last entry.
    local value, own_record, watched = unpack(call('MGET', key, record, 'lockfast:watched'))
    must_wait = value and not own_record and not watched
      and sub(value, @value.head@) == '@claim@' and sub(value, @value.owner@) ~= sub(beginning, @value.owner@)
  end
  if is_free or must_wait then
    local number = call('INCRBY', 'lockfast:tickets', '1')
    -- Read again as text: Redis formats large numbers faster than Lua, and exactly.
    local first = call('GET', 'lockfast:tickets')
    -- A counter at or below the smallest seed was lost: then the rule seeds it. The floor is compared as text, which costs less
    -- than parsing it.
    if number > @min_seed@ and (#first > #floor or #first == #floor and first > floor) then
      if not must_wait then
        call('PSETEX', key, ttl, beginning .. first .. ending)
        return first
      end
      call('ZADD', queue, first, sub(beginning, @value.identity@) .. ' @all@ @all@')
      call('PSETEX', record, ttl, beginning .. first .. ending)
      local position = call('ZCARD', queue)
      if position == 1 or call('PTTL', queue) < ttl + @outlives.min@ then
        call('PEXPIRE', queue, ttl + @outlives@)
      end
      -- As in `rule.recheck_and_position`: the longest lease of the holder, the first waiter and the entry just ahead. The two
      -- waiters are left out if the holder's lease is at least half of this claim's: the claim is renewed before that lease ends,
      -- and the reply to the renewal takes all three into account.
      local recheck = call('PTTL', key)
      if position > 1 and recheck < ttl / 2 then
        for _, rank in ipairs({0, position - 2}) do
          local ahead = call('ZRANGE', queue, rank, rank)[1]
          local lease = call('PTTL', 'lockfast:{' .. sub(ahead, @entry.home@) .. '}:claim:' .. sub(ahead, @entry.owner@))
          recheck = math.max(recheck, lease)
        end
      end
      return {first, recheck, position}
    end
  end
end

flags, block = flags or '', block or '1'
local now = string.sub(beginning, @value.since@)
local claim = {
  owner = string.sub(beginning, @value.owner@), client = string.sub(beginning, @value.client@),
  home = string.sub(beginning, @value.home@),
  since = now, ttl = ttl, count = block, note = string.match(ending, '^ %d+ %d+ (.*)$'),
}
claim.wants = {{key = key, tag = claim.home, weight = '@all@', capacity = '@all@'}}
