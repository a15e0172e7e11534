-- meta.lua: change what gateways enforce of a sale that is open: state, window, lists, prices.
--
-- KEYS  1 meta, then the keys whose lifetime follows the sale: occupied, participants, blocked, eligible, stock keys
-- ARGV  1 epoch   2 keysUntil, epoch ms, then field, value, ... of meta
--
-- Returns {outcome, epoch, seq, keysUntil before}: 1 written, 2 conflict: another epoch is there, 6 not_ready: no
-- meta, or being rebuilt.

local call = redis.call
local h = call('HMGET', KEYS[1], 'epoch', 'seq', 'state', 'keysUntil')
local epoch, seq, before = tonumber(h[1]) or 0, tonumber(h[2]) or 0, tonumber(h[4]) or 0
if epoch == 0 or h[3] == 'rebuilding' then
  return {6, epoch, seq, before}
end
if epoch ~= tonumber(ARGV[1]) then
  return {2, epoch, seq, before}
end
seq = seq + 1
call('HSET', KEYS[1], 'seq', seq, 'keysUntil', ARGV[2], unpack(ARGV, 3))
for i = 1, #KEYS do
  call('PEXPIREAT', KEYS[i], ARGV[2])
end
return {1, epoch, seq, before}
