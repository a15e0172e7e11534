-- wipe.lua: remove keys of a sale that is being rebuilt (R10).
--
-- KEYS  1 meta, then the keys to remove
-- ARGV  1 epoch
--
-- Returns {outcome, epoch, seq}: 1 removed, 2 conflict: meta is not rebuilding under this epoch. A leader that was
-- replaced while it walked through the keys must not remove what its successor has written since.

local h = redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'state')
local epoch, seq = tonumber(h[1]) or 0, tonumber(h[2]) or 0
if epoch ~= tonumber(ARGV[1]) or h[3] ~= 'rebuilding' then
  return {2, epoch, seq}
end
for i = 2, #KEYS do
  redis.call('UNLINK', KEYS[i])
end
return {1, epoch, seq}
