-- mark.lua: set or remove a participation mark that an audit found wrong, if it is still as the audit read it (R13).
--
-- KEYS  1 meta   2 participants   3 participation mark
-- ARGV  1 user id   2 the token it named, '' for none   3 the token it is to name, '' to remove it
--
-- Returns {outcome, epoch, seq}: 1 done, 2 conflict: the mark names something else now, or the sale is not ready.

local call, pcall = redis.call, redis.pcall
local h = call('HMGET', KEYS[1], 'epoch', 'seq', 'state', 'keysUntil')
local epoch, seq = tonumber(h[1]) or 0, tonumber(h[2]) or 0
local named = pcall('GET', KEYS[3])
if type(named) == 'table' then -- another type there: as good as none
  call('DEL', KEYS[3])
  named = false
end
if epoch == 0 or h[3] == 'rebuilding' or not tonumber(h[4]) or (named or '') ~= ARGV[2] then
  return {2, epoch, seq}
end
if ARGV[3] == '' then
  call('DEL', KEYS[3])
  call('SREM', KEYS[2], ARGV[1])
else
  call('SET', KEYS[3], ARGV[3], 'PXAT', h[4])
  call('SADD', KEYS[2], ARGV[1])
  call('PEXPIREAT', KEYS[2], h[4])
end
seq = seq + 1
call('HSET', KEYS[1], 'seq', seq)
return {1, epoch, seq}
