-- limit.lua: count one request in a user's window, the same that reserve.lua uses (S5).
--
-- KEYS  1 user window
-- ARGV  1 now, epoch ms, 13 digits   2 requests a second
--
-- Returns {allowed 0 or 1, ms until there is room}.
--
-- The window holds the times of the last requests that passed, 13 digits each, oldest first: no second ever sees more
-- than the limit. Every write sets a TTL; a value that is none of this counts as empty (FS-032).

local now, size = tonumber(ARGV[1]), 13 * tonumber(ARGV[2])
local window = redis.call('MGET', KEYS[1])[1] or '' -- MGET: nil for a key of another type
window = string.sub(window, -size)
local oldest = tonumber(string.sub(window, 1, 13))
if #window % 13 ~= 0 or not oldest or oldest > now + 2000 then
  window = ''
end
if #window == size then
  if now - oldest < 1000 then
    return {0, 1000 - (now - oldest)}
  end
  window = string.sub(window, 14)
end
redis.call('SET', KEYS[1], window .. ARGV[1], 'PX', 3000)
return {1, 0}
