-- wait.lua: put waiters into the line of a commodity, or take them out (R12). The database keeps the list; this is its
-- cache.
--
-- KEYS  1 meta   2 waitlist of the commodity
-- ARGV  1 join or leave   2 n, then n user ids; for join then n times of joining, epoch ms
--
-- Returns {epoch, seq, usable 0 or 1}. usable is 0 when the sale has no meta; nothing is written then. A rebuild may
-- write: it fills the line before it opens. Joining again changes nothing.

local call = redis.call
local n = tonumber(ARGV[2])
local meta = call('HMGET', KEYS[1], 'epoch', 'seq', 'keysUntil')
local epoch, seq = tonumber(meta[1]) or 0, tonumber(meta[2]) or 0
if epoch == 0 or not tonumber(meta[3]) then
  return {epoch, seq, 0}
end
for i = 1, n do
  if ARGV[1] == 'join' then
    call('ZADD', KEYS[2], 'NX', ARGV[2 + n + i], ARGV[2 + i])
  else
    call('ZREM', KEYS[2], ARGV[2 + i])
  end
end
call('PEXPIREAT', KEYS[2], meta[3])
return {epoch, seq, 1}
