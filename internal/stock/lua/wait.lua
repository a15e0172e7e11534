-- wait.lua: put waiters into the line of a commodity, or take them out (R12). The database keeps the list; this is its
-- cache.
--
-- KEYS  1 meta   2 waitlist of the commodity
-- ARGV  1 what: join, fill, leave or drop   2 epoch of the rebuild that fills, else 0   3 n, then n user ids; but for
--       leave then n times of joining, epoch ms
--
-- Returns {epoch, seq, outcome}: 1 done; 0 not usable: the sale has no meta; 2 conflict: a fill that is not of the
-- rebuild that goes on. Nothing is written then. All but fill may come during a rebuild.
--
-- Who joins again after leaving joined later: the later time counts, in whatever order the two arrive. drop takes out
-- only who stands there with this very time, so not one who has joined again meanwhile.

local call = redis.call
local what, n = ARGV[1], tonumber(ARGV[3])
local meta = call('HMGET', KEYS[1], 'epoch', 'seq', 'keysUntil', 'state')
local epoch, seq = tonumber(meta[1]) or 0, tonumber(meta[2]) or 0
if epoch == 0 or not tonumber(meta[3]) then
  return {epoch, seq, 0}
end
if what == 'fill' and (epoch ~= tonumber(ARGV[2]) or meta[4] ~= 'rebuilding') then
  return {epoch, seq, 2}
end
for i = 1, n do
  local user, at = ARGV[3 + i], ARGV[3 + n + i]
  local have = what ~= 'leave' and tonumber(call('ZSCORE', KEYS[2], user) or '')
  if what == 'leave' or what == 'drop' and have == tonumber(at) then
    call('ZREM', KEYS[2], user)
  elseif what ~= 'drop' and (not have or have < tonumber(at)) then
    call('ZADD', KEYS[2], at, user)
  end
end
call('PEXPIREAT', KEYS[2], meta[3])
return {epoch, seq, 1}
