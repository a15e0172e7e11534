-- take.lua: take unsold units of one commodity out of sale, once for each change (S39).
--
-- KEYS  1 meta   2 stock
-- ARGV  1 units to take   2 commodity   3 id of the change
--
-- Returns {outcome, epoch, seq}: 1 done, 2 conflict: fewer units are left, 6 not ready: no meta, being rebuilt, or no
-- usable stock key.
--
-- Meta remembers the last change of each commodity, so that a client library may send a call again whose answer it did
-- not get (FS-013): the second run finds its own id and takes nothing. A rebuild in between forgets it, and the audit
-- that follows every change makes Redis agree with the database.

local call, pcall = redis.call, redis.pcall
local last = 'taken:' .. ARGV[2]
local h = call('HMGET', KEYS[1], 'epoch', 'seq', 'state', last)
local epoch, seq = tonumber(h[1]) or 0, tonumber(h[2]) or 0
local units = pcall('GET', KEYS[2])
if epoch == 0 or h[3] == 'rebuilding' or type(units) ~= 'string' or #units > 15 or not (units == '0' or string.find(units, '^[1-9]%d*$')) then
  return {6, epoch, seq}
end
if h[4] == ARGV[3] then
  return {1, epoch, seq}
end
if tonumber(units) < tonumber(ARGV[1]) then
  return {2, epoch, seq}
end
call('DECRBY', KEYS[2], ARGV[1])
seq = seq + 1
call('HSET', KEYS[1], 'seq', seq, last, ARGV[3])
return {1, epoch, seq}
