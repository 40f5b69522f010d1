-- release: ends claims, in order, and hands on what they held.
--
-- KEYS: the counter of tickets; then the names of all claims, one claim after the other.
-- ARGV: now; then for each claim how it leaves, its owner, client and home, what it wanted, and what else belongs to how.
local tickets, now = KEYS[1], ARGV[1]
-- Who was asked for already, and whether somebody listens.
local heard = {}

-- What most locks need, before the rule is even read: one claim on one name, held alone.
if #ARGV == 6 and ARGV[2] == 'done' and ARGV[6] == 'x' then
  local key, own = KEYS[2], 'lockfast1 x ' .. ARGV[3] .. ' - '
  local value = redis.pcall('GET', key)
  if type(value) == 'string' and string.sub(value, 1, #own) == own then
    local line = 'lockfast:{' .. ARGV[5] .. '}:line:' .. key
    if redis.call('EXISTS', line, 'lockfast:watched') == 0 then
      redis.call('DEL', key)
      return 'gone left'
    end
    -- Somebody waits: if it wants this name alone, lives and listens, it is handed the key. As by the rule: ask who lives,
    -- write, tell; and begin with what a full Redis allows.
    local seat = redis.call('ZRANGE', line, 0, 0)[1]
    local next_owner, next_home = string.match(seat or '', '^(%x+) %x+ (%w+) 1048576 1048576$')
    local record = next_owner and 'lockfast:{' .. next_home .. '}:claim:' .. next_owner
    local packed = record and redis.call('EXISTS', 'lockfast:watched') == 0 and redis.call('GET', record)
    local claim = packed and string.sub(packed, 1, 5) ~= 'gone ' and cmsgpack.unpack(packed)
    if claim and claim.v == 1 and #claim.wants == 1 and not claim.detached then
      local channel = 'lockfast:push:' .. claim.client
      local ears = not claim.quiet and redis.pcall('PUBSUB', 'NUMSUB', channel)
      local lease = redis.call('PTTL', record)
      if ears and not ears.err then
        heard[claim.client] = tonumber(ears[2]) > 0
      end
      if lease > 0 and heard[claim.client] then
        redis.call('ZREM', line, seat)
        redis.call('DEL', record)
        redis.call('SET', key, 'lockfast1 x ' .. claim.owner .. ' - ' .. claim.first .. ' ' .. claim.count .. ' '
          .. claim.client .. ' ' .. claim.home .. ' ' .. now .. ' ' .. claim.ttl .. ' ' .. claim.note, 'PX', lease)
        redis.pcall('PUBLISH', channel, 'held ' .. claim.owner .. ' ' .. claim.first)
        return 'gone left'
      end
    end
  end
end
