-- quota.lua: lease permits from the system-wide window, above those of the sales (S4).
--
-- KEYS  1 rate of the whole system
-- ARGV  1 now, epoch ms   2 reservations a second   3 permits wanted
--
-- Returns {permits granted}, 0 to ARGV[3].

local now, limit, want = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local bucket = math.floor(now / 1000)
local left = 1000 - (now - bucket * 1000)
local last, count = 0, 0
local w = redis.pcall('HMGET', KEYS[1], 'bucket', 'last', 'count')
if w.err then -- another type there: start anew (FS-032)
  redis.call('DEL', KEYS[1])
else
  local b = tonumber(w[1])
  if b == bucket - 1 then
    last = tonumber(w[3]) or 0
  elseif b and b >= bucket and b <= bucket + 2 then
    if b > bucket then
      bucket, left = b, 1000
    end
    last, count = tonumber(w[2]) or 0, tonumber(w[3]) or 0
  end
end
local granted = math.max(0, math.min(want, math.floor(limit - last * left / 1000 - count)))
if granted > 0 then
  redis.call('HSET', KEYS[1], 'bucket', bucket, 'last', last, 'count', count + granted)
  redis.call('PEXPIRE', KEYS[1], 3000)
end
return {granted}
