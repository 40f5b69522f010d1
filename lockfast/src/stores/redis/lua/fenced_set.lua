-- fenced_set: writes a value, unless it was written under a later fence.
--
-- KEYS  1 the key to write, 2 the highest fence it was written under
-- ARGV  1 the fence, 2 the value, 3 for how long the fence is kept, in milliseconds
-- Reply 'written'; or the highest fence, and nothing is written
local key, highest_key = KEYS[1], KEYS[2]
local fence, value, fence_ttl = ARGV[1], ARGV[2], ARGV[3]
local highest = redis.call('GET', highest_key)
if highest and tonumber(highest) > tonumber(fence) then
  return highest
end
redis.call('SET', highest_key, fence, 'PX', fence_ttl)
redis.call('SET', key, value)
return 'written'
