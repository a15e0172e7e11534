-- promote.lua: give the units of one cancelled or closed order to the heads of the waitlist, the rest back on sale
-- (R5, R12, S24).
--
-- KEYS  1 meta   2 occupied   3 participants   4 waitlist of the commodity   5 its stock   6 token hash of the order
--       then k participation marks and k new token hashes, of the first k waiters in line
-- ARGV  1 now, epoch ms   2 k   3 commodity   4..7 status, reason, orderNo, version of the returned order
--       8, 9 epoch and seq that the caller has seen before
--       then k user ids, then k new tokens
--
-- Returns {epoch, seq, usable 0 or 1, code, price, promoted indexes...}: code 1 done, 2 already (released before),
-- 4 not_yet (occupied, unknown, sale not ready, stock key missing; or Redis went back behind 8 and 9, and its line with
-- it), 5 head_changed (these are not the first in line).
--
-- A waiter who has a mark takes part already: skipped, not popped. The token goes committed -> released and the new
-- ones become occupied in the same step, so a unit is never on its way twice; a second run answers already.

local call, pcall = redis.call, redis.pcall
local now, k, commodity = ARGV[1], tonumber(ARGV[2]), ARGV[3]

local meta = call('HMGET', KEYS[1], 'epoch', 'seq', 'state', 'keysUntil', 'price:' .. commodity)
local epoch, seq = tonumber(meta[1]) or 0, tonumber(meta[2]) or 0
local usable = epoch > 0 and meta[3] ~= 'rebuilding' and tonumber(meta[4]) ~= nil and meta[5]
local reply = {epoch, seq, usable and 1 or 0, 4, meta[5] or ''}
local stock = pcall('GET', KEYS[5])
local h = pcall('HMGET', KEYS[6], 'state', 'version', 'quantity', 'commodityId')
local floor = tonumber(ARGV[8])
if epoch < floor or epoch == floor and seq < tonumber(ARGV[9]) then
  return reply
end
if not usable or type(stock) ~= 'string' or #stock > 15 or not (stock == '0' or string.find(stock, '^[1-9]%d*$')) or h.err or not h[1] then
  return reply
end
if h[1] == 'released' then
  reply[4] = 2
  return reply
end
if h[1] ~= 'committed' or h[4] ~= commodity or not tonumber(h[3]) then
  return reply
end
local line = call('ZRANGE', KEYS[4], 0, k - 1)
if k == 0 then
  line = {}
end
for i = 1, k do
  if line[i] ~= ARGV[9 + i] then
    reply[4] = 5
    return reply
  end
end

local left = tonumber(h[3])
call('HSET', KEYS[6], 'state', 'released')
if tonumber(ARGV[7]) > (tonumber(h[2]) or 0) then
  call('HSET', KEYS[6], 'status', ARGV[4], 'reason', ARGV[5], 'orderNo', ARGV[6], 'version', ARGV[7])
end
for i = 1, k do
  local mark, token, user, id = KEYS[6 + i], KEYS[6 + k + i], ARGV[9 + i], ARGV[9 + k + i]
  if left > 0 and call('EXISTS', mark, token) == 0 then
    call('SET', mark, id, 'PXAT', meta[4])
    call('HSET', token, 'state', 'occupied', 'userId', user, 'commodityId', commodity, 'quantity', '1', 'price', meta[5],
      'ts', now, 'epoch', meta[1], 'status', 'processing', 'version', '0')
    call('PEXPIREAT', token, meta[4])
    call('ZADD', KEYS[2], now, id)
    call('PEXPIREAT', KEYS[2], meta[4])
    call('SADD', KEYS[3], user)
    call('PEXPIREAT', KEYS[3], meta[4])
    call('ZREM', KEYS[4], user)
    left = left - 1
    reply[#reply + 1] = i
  end
end
if left > 0 then
  call('INCRBY', KEYS[5], left)
end
seq = seq + 1
call('HSET', KEYS[1], 'seq', seq)
reply[2], reply[4] = seq, 1
return reply
