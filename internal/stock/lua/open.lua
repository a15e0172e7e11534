-- open.lua: the last step of a rebuild: stock keys and meta appear together (R10).
--
-- KEYS  1 meta, then m stock keys
-- ARGV  1 epoch   2 m   3 keysUntil, epoch ms, then the m numbers of units left, then field, value, ... of meta
--
-- Returns {outcome, epoch, seq}: 1 open, 2 conflict: meta is not rebuilding under this epoch. A second run after a
-- lost reply finds the sale open under this epoch: that answers 3, and the caller takes it for done.

local call = redis.call
local h = call('HMGET', KEYS[1], 'epoch', 'seq', 'state')
local epoch, seq = tonumber(h[1]) or 0, tonumber(h[2]) or 0
if epoch ~= tonumber(ARGV[1]) then
  return {2, epoch, seq}
end
if h[3] ~= 'rebuilding' then
  return {3, epoch, seq}
end
local m = tonumber(ARGV[2])
for i = 1, m do
  call('SET', KEYS[1 + i], ARGV[3 + i], 'PXAT', ARGV[3])
end
seq = seq + 1
call('HSET', KEYS[1], 'seq', seq, 'keysUntil', ARGV[3], unpack(ARGV, 4 + m))
call('PEXPIREAT', KEYS[1], ARGV[3])
return {1, epoch, seq}
