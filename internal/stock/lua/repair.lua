-- repair.lua: set stock to what the audit worked out, unless the sale has moved since (R13).
--
-- KEYS  1 meta, then m stock keys
-- ARGV  1 epoch   2 seq, as the audit read them, then m numbers of units
--
-- Returns {outcome, epoch, seq}: 1 written, 2 conflict: epoch or seq moved, or the sale is being rebuilt. A stock
-- key that is missing is not created: only a rebuild does that (R10).

local call = redis.call
local h = call('HMGET', KEYS[1], 'epoch', 'seq', 'state', 'keysUntil')
local epoch, seq = tonumber(h[1]) or 0, tonumber(h[2]) or 0
if epoch == 0 or epoch ~= tonumber(ARGV[1]) or seq ~= tonumber(ARGV[2]) or h[3] == 'rebuilding' then
  return {2, epoch, seq}
end
for i = 2, #KEYS do
  call('SET', KEYS[i], ARGV[1 + i], 'PXAT', h[4], 'XX')
end
seq = seq + 1
call('HSET', KEYS[1], 'seq', seq)
return {1, epoch, seq}
