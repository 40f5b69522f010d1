-- rights: the commands that locks need and this user may not run. Changes and logs nothing.
--
-- KEYS  none
-- ARGV  1 a name as it is stored
--       2 for how many replicas locks wait
-- Reply the commands that are refused, each with its first argument; nil before Redis 7, where scripts cannot ask
if not redis.acl_check_cmd then
  return false
end
local name, own, channel = ARGV[1], 'lockfast:tickets', 'lockfast:push:0'
local needed = {
  {'GET', name}, {'GETRANGE', name, '0', '1'}, {'MGET', name}, {'SET', name, 'x'}, {'PSETEX', name, '1', 'x'},
  {'RENAME', own, name}, {'SETRANGE', name, '0', 'x'}, {'GET', own}, {'SET', own, 'x'}, {'DEL', own}, {'EXISTS', own},
  {'PTTL', own}, {'PEXPIRE', own, '1'}, {'PEXPIREAT', name, '1'}, {'INCRBY', own, '1'}, {'TIME'},
  {'ZADD', own, '0', 'x'}, {'ZREM', own, 'x'},
  {'ZRANGE', own, '0', '1'}, {'ZRANK', own, 'x'}, {'ZSCORE', own, 'x'}, {'ZCARD', own}, {'ZCOUNT', own, '0', '1'},
  {'ZRANGEBYSCORE', own, '0', '1'}, {'ZREVRANGEBYSCORE', own, '1', '0'}, {'ZRANGEBYLEX', own, '-', '+'},
  {'ZREMRANGEBYSCORE', own, '0', '1'}, {'HGET', own, 'x'}, {'HSET', own, 'x', 'x'}, {'HDEL', own, 'x'},
  {'HMGET', own, 'x'}, {'HINCRBY', own, 'x', '1'}, {'PUBLISH', channel, 'x'}, {'PUBSUB', 'NUMSUB', channel},
  {'SUBSCRIBE', channel}, {'UNSUBSCRIBE', channel}, {'EVALSHA', 'x', '0'}, {'INFO', 'server'},
}
if ARGV[2] ~= '0' then
  needed[#needed + 1] = {'WAIT', ARGV[2], '0'}
end
local missing = {}
for _, command in ipairs(needed) do
  if not redis.acl_check_cmd(unpack(command)) then
    missing[#missing + 1] = table.concat(command, ' ', 1, math.min(#command, 2))
  end
end
return missing
