-- settle.lua: carry decisions of the database over to the tokens of one sale (R1, R4, R5, R6, R7).
--
-- KEYS  1 meta   2 occupied   3 participants
--       then m stock keys, then for every decision its participation mark and its token hash
-- ARGV  1 expiry to use when the sale has no meta, epoch ms   2 m   3 n
--       then m commodity ids
--       then 16 for every decision: ordered 1 or 0, give the unit back 1 or 0, place of the commodity 1..m, token,
--       userId, commodityId, quantity, price, ts, epoch, status, reason, orderNo, payBefore, version, first token
--
-- Returns {epoch, seq, usable 0 or 1, n codes}: 1 done, 2 already, 3 unknown (the hash was missing and is written
-- back). usable is 0 while the sale has no meta or is being rebuilt.
--
-- An order: occupied becomes committed. A refusal: occupied becomes released; its unit goes back only then, and only
-- into a stock key that exists; the mark goes if it still names this token, or names the first token instead.
-- Status, order number, deadline and version are written only with a higher version (R4). Running it again changes
-- nothing and answers already.

local call, pcall = redis.call, redis.pcall
local fallback, m, n = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local meta = call('HMGET', KEYS[1], 'epoch', 'seq', 'state', 'keysUntil')
local epoch, seq = tonumber(meta[1]) or 0, tonumber(meta[2]) or 0
local usable = epoch > 0 and meta[3] ~= 'rebuilding'
local keysUntil = tonumber(meta[4]) and meta[4] or fallback
call('ZCARD', KEYS[2])
call('SCARD', KEYS[3])
local stock = m > 0 and call('MGET', unpack(KEYS, 4, 3 + m)) or {}
local back, settled, changed = {}, {}, false
local reply = {epoch, seq, usable and 1 or 0}

local function whole(v)
  return v and #v <= 15 and (v == '0' or string.find(v, '^[1-9]%d*$'))
end

local function point(mark, user, token)
  call('SET', mark, token, 'PXAT', keysUntil)
  call('SADD', KEYS[3], user)
  call('PEXPIREAT', KEYS[3], keysUntil)
end

for i = 1, n do
  local mark, key = KEYS[2 + m + 2 * i], KEYS[3 + m + 2 * i]
  local at = 3 + m + 16 * (i - 1)
  local ordered, item, token, user = ARGV[at + 1] == '1', tonumber(ARGV[at + 3]), ARGV[at + 4], ARGV[at + 5]
  local h = pcall('HMGET', key, 'state', 'version', 'quantity', 'commodityId', 'userId')
  if h.err then
    call('DEL', key)
    h = {}
  end
  local to = ordered and 'committed' or 'released'
  local code = 2
  local foreign = h[5] and h[5] ~= user -- a forged message: the reservation is another user's, and stays as it is
  if foreign then
    code = 2
  elseif not h[1] then
    call('HSET', key, 'state', to, 'userId', user, 'commodityId', ARGV[at + 6], 'quantity', ARGV[at + 7],
      'price', ARGV[at + 8], 'ts', ARGV[at + 9], 'epoch', ARGV[at + 10], 'status', ARGV[at + 11],
      'reason', ARGV[at + 12], 'orderNo', ARGV[at + 13], 'payBefore', ARGV[at + 14], 'version', ARGV[at + 15])
    call('PEXPIREAT', key, keysUntil)
    code, changed = 3, true
    if ordered then
      point(mark, user, token)
    end
  else
    local newer = tonumber(ARGV[at + 15]) > (tonumber(h[2]) or 0)
    if newer then
      call('HSET', key, 'status', ARGV[at + 11], 'reason', ARGV[at + 12], 'orderNo', ARGV[at + 13],
        'payBefore', ARGV[at + 14], 'version', ARGV[at + 15])
      changed = true
    end
    if h[1] == 'occupied' then
      call('HSET', key, 'state', to)
      code, changed = 1, true
      if ARGV[at + 2] == '1' and usable and whole(stock[item]) and h[4] == ARGV[3 + item] then
        back[item] = (back[item] or 0) + (tonumber(h[3]) or 0)
      end
    end
  end
  if not foreign then
    settled[#settled + 1] = token
  end
  if not ordered and not foreign then
    local first = ARGV[at + 16]
    local named = pcall('GET', mark)
    if first ~= '' then
      if named ~= first then
        point(mark, user, first)
        changed = true
      end
    elseif named == token then
      call('DEL', mark)
      call('SREM', KEYS[3], user)
      changed = true
    end
  end
  reply[3 + i] = code
end

if #settled > 0 then
  call('ZREM', KEYS[2], unpack(settled))
end
for item, units in pairs(back) do
  call('INCRBY', KEYS[3 + item], units)
end
if changed and epoch > 0 then
  seq = seq + 1
  call('HSET', KEYS[1], 'seq', seq)
  reply[2] = seq
end
return reply
