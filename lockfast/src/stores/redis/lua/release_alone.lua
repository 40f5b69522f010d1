-- release_alone: a claim that wants one name, exclusively, leaves; its name is handed off.
--
-- KEYS  1 the name, 2 its queue
-- ARGV  1 the claim's text up to SINCE, without flags
--       2 now, in milliseconds, 13 digits; shown to people, never compared
-- Reply 'gone left'; the text of the claim that holds now, if it is of the same client, which then gets no push; {'gone WHY'}; or
--       {'failed MESSAGE'}
local key, queue, beginning, now = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
-- Whether a client has a subscription, by client: only of the client that the fast path has checked.
local subscribed

do
  local call, sub = redis.call, string.sub
  -- A key of another type does not read as text here.
  if redis.pcall('GETRANGE', key, @value.beginning:range@) == beginning then
    -- How many of the two exist: 0 if no claim waits and no client watches queues.
    local others = call('EXISTS', queue, 'lockfast:watched')
    if others == 0 then
      call('DEL', key)
      return 'gone left'
    end
    -- The first waiter gets the key here if it wants only this name, exclusively, lives and has a subscription. The order is that
    -- of the rule: check the subscription, write the grant, publish; and the first write is one that a full Redis allows. The
    -- rule handles all other cases.
    local entry = others == 1 and redis.pcall('ZRANGE', queue, '0', '0')[1]
    if entry and sub(entry, @entry.demand@) == ' @all@ @all@' then
      local record = sub(queue, @key.slot@) .. 'claim:' .. sub(entry, @entry.owner@)
      local waiting = redis.pcall('GET', record)
      if type(waiting) == 'string' and sub(waiting, @value.beginning@) == '@claim@' .. sub(entry, @entry.identity@) .. ' - ' then
        local client = sub(entry, @entry.client@)
        -- The client that releases is alive and needs no push: the reply names its claim that holds now.
        local is_own = client == sub(beginning, @value.client@)
        local channel = not is_own and 'lockfast:push:' .. client
        local numsub = not is_own and redis.pcall('PUBSUB', 'NUMSUB', channel)
        if is_own or not numsub.err and tonumber(numsub[2]) > 0 then
          call('ZREM', queue, entry)
          -- The record of a waiter is the text of a holder, but for SINCE, and expires with the waiter's lease.
          call('RENAME', record, key)
          call('SETRANGE', key, @value.since:offset@, now)
          if is_own then
            return waiting
          end
          redis.pcall('PUBLISH', channel, waiting)
          return 'gone left'
        end
        subscribed = {[client] = numsub.err ~= nil}
      end
    end
  end
end

local leavings = {{'done', {
  owner = string.sub(beginning, @value.owner@), client = string.sub(beginning, @value.client@),
  home = string.sub(beginning, @value.home@),
  wants = {{key = key, tag = string.sub(beginning, @value.home@), weight = '@all@', capacity = '@all@'}},
}}}
