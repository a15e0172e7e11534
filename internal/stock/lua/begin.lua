-- begin.lua: close a sale for a rebuild under a new epoch (R10).
--
-- KEYS  1 meta
-- ARGV  1 epoch   2 keysUntil   3 startsAt   4 endsAt, all but the epoch in epoch ms
--
-- Returns {outcome, epoch, seq}: 1 closed for this epoch, now or by an earlier run; 2 conflict: a later epoch is
-- there, or this one is open already.

local call = redis.call
local h = redis.pcall('HMGET', KEYS[1], 'epoch', 'seq', 'state')
if h.err then
  h = {}
end
local epoch, seq = tonumber(h[1]) or 0, tonumber(h[2]) or 0
local want = tonumber(ARGV[1])
if epoch > want or epoch == want and h[3] ~= 'rebuilding' then
  return {2, epoch, seq}
end
seq = seq + 1
call('DEL', KEYS[1])
call('HSET', KEYS[1], 'epoch', ARGV[1], 'seq', seq, 'state', 'rebuilding', 'keysUntil', ARGV[2],
  'startsAt', ARGV[3], 'endsAt', ARGV[4])
call('PEXPIREAT', KEYS[1], ARGV[2])
return {1, want, seq}
