-- release_alone: ends a claim that wanted one name alone, and hands on what it held.
--
-- KEYS: the name, its line. ARGV: what its value begins with; now.
local key, line, begins, now = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
-- Who was asked for already, and whether somebody listens.
local heard

do
  local call, sub = redis.call, string.sub
  -- What is of another kind does not read as a text here.
  if redis.pcall('GETRANGE', key, '0', '67') == begins then
    local others = call('EXISTS', line, 'lockfast:watched')
    if others == 0 then
      call('DEL', key)
      return 'gone left'
    end
    -- Somebody waits: if it wants this name alone, lives and listens, it is handed the key. As by the rule: ask who lives,
    -- write, tell; and begin with what a full Redis allows. If something else stands in its place, that is the rule's to mend.
    local seat = others == 1 and redis.pcall('ZRANGE', line, '0', '0')[1]
    if seat and sub(seat, 54) == ' 1048576 1048576' then
      local record = sub(line, 1, 15) .. 'claim:' .. sub(seat, 1, 32)
      local waiting = redis.pcall('GET', record)
      if type(waiting) == 'string' and sub(waiting, 1, 68) == 'lockfast1 x ' .. sub(seat, 1, 53) .. ' - ' then
        local client = sub(seat, 34, 49)
        -- One of the same client lives, and is told by the answer.
        local is_own = client == sub(begins, 46, 61)
        local channel = not is_own and 'lockfast:push:' .. client
        local ears = not is_own and redis.pcall('PUBSUB', 'NUMSUB', channel)
        if is_own or not ears.err and tonumber(ears[2]) > 0 then
          call('ZREM', line, seat)
          -- The record of who waits is what stands at the key when it holds, but for since when; and has its lease.
          call('RENAME', record, key)
          call('SETRANGE', key, '68', now)
          if is_own then
            return waiting
          end
          redis.pcall('PUBLISH', channel, waiting)
          return 'gone left'
        end
        heard = {[client] = ears.err ~= nil}
      end
    end
  end
end

local leavings = {{'done', {
  owner = string.sub(begins, 13, 44), client = string.sub(begins, 46, 61), home = string.sub(begins, 63, 65),
  wants = {{key = key, tag = string.sub(begins, 63, 65), weight = '1048576', capacity = '1048576'}},
}}}
