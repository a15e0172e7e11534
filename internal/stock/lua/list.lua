-- list.lua: put users on the blocked or eligible list of a sale, or take them off.
--
-- KEYS  1 meta   2 the list
-- ARGV  1 epoch of the rebuild that calls, or 0 for an operator   2 add 1, remove 0, then user ids
--
-- Returns {outcome, epoch, seq}: 1 written; 2 conflict: not rebuilding under this epoch; 6 not_ready: an operator's
-- call while the sale has no meta or is being rebuilt. The database keeps the lists: call again after the rebuild.

local call = redis.call
local h = call('HMGET', KEYS[1], 'epoch', 'seq', 'state', 'keysUntil')
local epoch, seq, want = tonumber(h[1]) or 0, tonumber(h[2]) or 0, tonumber(ARGV[1])
if want > 0 and (epoch ~= want or h[3] ~= 'rebuilding') then
  return {2, epoch, seq}
end
if want == 0 and (epoch == 0 or h[3] == 'rebuilding') then
  return {6, epoch, seq}
end
if ARGV[2] == '1' then
  call('SADD', KEYS[2], unpack(ARGV, 3))
  call('PEXPIREAT', KEYS[2], h[4])
else
  call('SREM', KEYS[2], unpack(ARGV, 3))
end
seq = seq + 1
call('HSET', KEYS[1], 'seq', seq)
return {1, epoch, seq}
