-- fenced_set: writes a value unless somebody with a later fence has been there.
--
-- KEYS: what to write; where the highest fence is remembered.
-- ARGV: the fence; the value; for how long the fence is remembered, in milliseconds.
local key, mark = KEYS[1], KEYS[2]
local fence, value, keep = ARGV[1], ARGV[2], ARGV[3]
local highest = redis.call('GET', mark)
if highest and tonumber(highest) > tonumber(fence) then
  return highest
end
redis.call('SET', mark, fence, 'PX', keep)
redis.call('SET', key, value)
return 'written'
