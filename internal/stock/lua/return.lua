-- return.lua: put the units of cancelled and closed orders back on sale, each once (R5).
--
-- KEYS  1 meta, then m stock keys, then the token hash of every return
-- ARGV  1 m   2 n, then m commodity ids
--       then 5 for every return: place of the commodity 1..m, status, reason, orderNo, version
--
-- Returns {epoch, seq, usable 0 or 1, n codes}: 1 done, 2 already (released before), 4 not_yet: the token is occupied
-- or unknown, the sale is not ready, or its stock key is missing or no plain integer.
--
-- committed becomes released and the stock grows by the quantity that was taken, in the same step; so a second run
-- answers already. The status is written only with a higher version (R4), whatever the token's state.

local call, pcall = redis.call, redis.pcall
local m, n = tonumber(ARGV[1]), tonumber(ARGV[2])

local meta = call('HMGET', KEYS[1], 'epoch', 'seq', 'state')
local epoch, seq = tonumber(meta[1]) or 0, tonumber(meta[2]) or 0
local usable = epoch > 0 and meta[3] ~= 'rebuilding'
local stock = m > 0 and call('MGET', unpack(KEYS, 2, 1 + m)) or {}
local back, changed = {}, false
local reply = {epoch, seq, usable and 1 or 0}

local function whole(v)
  return v and #v <= 15 and (v == '0' or string.find(v, '^[1-9]%d*$'))
end

for i = 1, n do
  local key = KEYS[1 + m + i]
  local at = 2 + m + 5 * (i - 1)
  local item = tonumber(ARGV[at + 1])
  local h = pcall('HMGET', key, 'state', 'version', 'quantity', 'commodityId')
  local code = 4
  if not h.err and h[1] then
    if tonumber(ARGV[at + 5]) > (tonumber(h[2]) or 0) then
      call('HSET', key, 'status', ARGV[at + 2], 'reason', ARGV[at + 3], 'orderNo', ARGV[at + 4],
        'version', ARGV[at + 5])
      changed = true
    end
    if h[1] == 'released' then
      code = 2
    elseif h[1] == 'committed' and usable and whole(stock[item]) and h[4] == ARGV[2 + item] and tonumber(h[3]) then
      call('HSET', key, 'state', 'released')
      back[item] = (back[item] or 0) + tonumber(h[3])
      code, changed = 1, true
    end
  end
  reply[3 + i] = code
end

for item, units in pairs(back) do
  call('INCRBY', KEYS[1 + item], units)
end
if changed and epoch > 0 then
  seq = seq + 1
  call('HSET', KEYS[1], 'seq', seq)
  reply[2] = seq
end
return reply
