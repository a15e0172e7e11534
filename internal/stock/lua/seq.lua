-- seq.lua: raise a sale's sequence number, so that a rewind shows within a second (R15).
--
-- KEYS  1 meta
-- ARGV  none
--
-- Returns {epoch, seq}; zeros and no write when the sale has no meta.

local h = redis.call('HMGET', KEYS[1], 'epoch', 'seq')
local epoch, seq = tonumber(h[1]) or 0, tonumber(h[2]) or 0
if epoch > 0 then
  seq = seq + 1
  redis.call('HSET', KEYS[1], 'seq', seq)
end
return {epoch, seq}
