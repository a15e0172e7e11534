-- limit.lua: count one request in a user's window, the same that reserve.lua uses (S5).
--
-- KEYS  1 user window
-- ARGV  1 now, epoch ms   2 requests a second
--
-- Returns {allowed 0 or 1, ms until there is room}.
--
-- The window is one number: second * 10^6 + count of the last second * 10^3 + count of this one. A key without a
-- TTL, of another type or from another time counts as empty and is written anew with a TTL (FS-032).

local now, limit = tonumber(ARGV[1]), tonumber(ARGV[2])
local bucket = math.floor(now / 1000)
local left = 1000 - (now - bucket * 1000)
local last, count = 0, 0
local v = tonumber(redis.call('MGET', KEYS[1])[1]) -- MGET: nil for a key of another type
if v then
  local stored = math.floor(v / 1000000)
  local counts = math.floor(v - stored * 1000000)
  if stored == bucket - 1 then
    last = counts % 1000
  elseif stored == bucket or stored > bucket and stored <= bucket + 2 then
    if stored > bucket then -- another gateway's clock is ahead: use its second
      bucket, left = stored, 1000
    end
    last = math.floor(counts / 1000)
    count = counts - last * 1000
  end
end
if last * left / 1000 + count + 1 > limit then
  if count + 1 <= limit then
    return {0, math.ceil(left - (limit - 1 - count) * 1000 / last)}
  end
  return {0, math.ceil(left + 1000 - (limit - 1) * 1000 / count)}
end
redis.call('SET', KEYS[1], string.format('%d%06d', bucket, last * 1000 + count + 1), 'PX', 2000)
return {1, 0}
