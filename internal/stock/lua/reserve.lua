-- reserve.lua: pre-deduct for a batch of requests of one sale (S1, S4, S5, S6).
--
-- KEYS  1 meta   2 occupied   3 rate   4 blocked   5 eligible   6 participants
--       then m stock keys, one for each distinct commodity of the batch
--       then n participation marks, n user windows, n token hashes, one of each for every request
-- ARGV  1 now, epoch ms   2 m   3 n   4 requests a second of a user   5 reservations a second of the sale
--       6, 7 where the user id begins in a mark key, where the token begins in a token key (1 = first byte)
--       then m commodity ids
--       then n numbers: (place of the commodity, 1..m) * 1000 + quantity
--
-- Returns {epoch, seq, m prices, n answers}; epoch and seq are 0 when the sale has no meta. An answer is a code, or
-- an array that begins with one. No answer is ever nil.
--   1 accepted
--   {2, state, commodityId, quantity, price, ts, epoch, status, reason, orderNo, payBefore, version}  repeat
--   3 mismatch        {4, token} participated    5 sold_out       6 not_started
--   7 ended           8 paused                   9 not_ready     10 unknown_item
--  11 blocked        12 not_eligible            {13, ms} rate_limited, {14, ms} sale_limited: room again in ms
--  15 bad_quantity   16 foreign_holder
--
-- Everything that can fail because of a key's type is read before the first write, and the first write is one that
-- Redis refuses at maxmemory, so that the script happens whole or not at all (FS-015). A second run with the same
-- tokens answers "repeat" and takes nothing, so that a client library may retry it (FS-013). Ids stay strings:
-- a number has 53 bits (FS-023). Values that are read once for the whole batch are what makes a batch cheap.

local call, floor = redis.call, math.floor
local sub, find = string.sub, string.find
local now, m, n = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local userLimit, saleLimit = tonumber(ARGV[4]), tonumber(ARGV[5])
local userFrom, tokenFrom = tonumber(ARGV[6]), tonumber(ARGV[7])
local nowText = ARGV[1]
local firstMark, firstRate, firstToken = 6 + m, 6 + m + n, 6 + m + 2 * n

-- Read what the batch shares.
local fields = {'epoch', 'seq', 'state', 'startsAt', 'endsAt', 'keysUntil', 'allowList'}
for i = 1, m do
  fields[6 + 2 * i] = 'price:' .. ARGV[7 + i]
  fields[7 + 2 * i] = 'max:' .. ARGV[7 + i]
end
local meta = call('HMGET', KEYS[1], unpack(fields))
local epoch, seq = tonumber(meta[1]) or 0, tonumber(meta[2]) or 0
local keysUntil = meta[6]
local startsAt, endsAt = tonumber(meta[4]), tonumber(meta[5])
local closed = 0 -- the answer to everyone while the sale does not sell; 0 when it does
local state = meta[3]
if epoch == 0 or not startsAt or not endsAt or not tonumber(keysUntil) then
  closed = 9
elseif state == 'live' or state == 'paused' or state == 'ended' then
  if now >= endsAt or state == 'ended' then
    closed = 7
  elseif state == 'paused' then
    closed = 8
  elseif now < startsAt then
    closed = 6
  end
else
  closed = 9 -- rebuilding, or not warmed up
end

local values = call('MGET', unpack(KEYS, 7, firstRate + n)) -- stock, marks, windows; nil for another type
local someKnown = call('EXISTS', unpack(KEYS, firstToken + 1, firstToken + n)) > 0
local someBlocked = call('SCARD', KEYS[4]) > 0
local someEligible = call('SCARD', KEYS[5]) > 0
local allowList = meta[7] == '1'
call('ZCARD', KEYS[2])
call('SCARD', KEYS[6])

local units = {} -- of each commodity; false when the stock key is missing or no plain integer
for i = 1, m do
  local v = values[i]
  units[i] = v and #v <= 15 and (v == '0' or find(v, '^[1-9]%d*$')) and tonumber(v) or false
end

-- The sale's window: counts of this and the last second; the last one fades as this one passes.
local bucket = floor(now / 1000)
local left = 1000 - (now - bucket * 1000)
local saleCount, saleLast = 0, 0
local w = redis.pcall('HMGET', KEYS[3], 'bucket', 'last', 'count')
local dropRate = w.err ~= nil -- another type there: start anew (FS-032)
if not dropRate then
  local b = tonumber(w[1])
  if b == bucket then
    saleLast, saleCount = tonumber(w[2]) or 0, tonumber(w[3]) or 0
  elseif b == bucket - 1 then
    saleLast = tonumber(w[3]) or 0
  elseif b and b > bucket and b <= bucket + 2 then -- another gateway's clock is ahead: use its second
    bucket, left = b, 1000
    saleLast, saleCount = tonumber(w[2]) or 0, tonumber(w[3]) or 0
  end
end
local saleFree = saleLimit - saleLast * left / 1000 - saleCount

-- How long until the sale's window has room for one more.
local function saleWait()
  if saleCount + 1 <= saleLimit then -- only the last second is in the way
    return math.ceil(left - (saleLimit - 1 - saleCount) * 1000 / saleLast)
  end
  return math.ceil(left + 1000 - (saleLimit - 1) * 1000 / saleCount)
end

local windowSize = 13 * userLimit
local userWindow, userMark, fresh = {}, {}, {} -- what this batch changed, by user and token
local taken = {}                               -- units taken of each commodity
local accepted = 0
local zadd, sadd = {}, {}
local answers = {}

-- The state of a token that is known already, as far as this user may see it.
local function known(i, user, item, quantity)
  local h = redis.pcall('HMGET', KEYS[firstToken + i], 'userId', 'state', 'commodityId', 'quantity', 'price', 'ts',
    'epoch', 'status', 'reason', 'orderNo', 'payBefore', 'version')
  if h.err then
    return 9 -- the key holds something else; nothing to build on
  end
  if not h[1] and not h[2] then
    return nil
  end
  if h[1] ~= user then
    return 16
  end
  if h[3] ~= ARGV[7 + item] or tonumber(h[4]) ~= quantity then
    return 3
  end
  local answer = {2}
  for k = 2, 12 do
    answer[k] = h[k] or ''
  end
  return answer
end

for i = 1, n do
  local user = sub(KEYS[firstMark + i], userFrom)
  local code = tonumber(ARGV[7 + m + i])
  local item = floor(code / 1000)
  local quantity = code - item * 1000
  local answer

  -- The user's window: the times of the last requests that passed, 13 digits each, oldest first.
  local window = userWindow[user] or values[m + n + i] or ''
  local size = #window
  if size > windowSize then
    window, size = sub(window, -windowSize), windowSize
  end
  local oldest = size > 0 and tonumber(sub(window, 1, 13))
  if size % 13 ~= 0 or not oldest or oldest > now + 2000 then
    window, size = '', 0 -- nonsense, or a time that no gateway's clock can be at (FS-032)
  end
  if size == windowSize and now - oldest < 1000 then
    answer = {13, 1000 - (now - oldest)}
  else
    if size == windowSize then
      window = sub(window, 14)
    end
    window = window .. nowText
    call('SET', KEYS[firstRate + i], window, 'PX', 3000)
    userWindow[user] = window

    local token = KEYS[firstToken + i]
    if fresh[token] or someKnown then
      answer = known(i, user, item, quantity)
    end
    if answer then
      -- told above
    elseif someBlocked and call('SISMEMBER', KEYS[4], user) == 1 then
      answer = 11
    elseif allowList and not (someEligible and call('SISMEMBER', KEYS[5], user) == 1) then
      answer = 12
    elseif closed > 0 then
      answer = closed
    else
      local price, most = meta[6 + 2 * item], tonumber(meta[7 + 2 * item])
      local mark = userMark[user] or values[m + i]
      local have = units[item]
      if not price or not most then
        answer = 10
      elseif quantity < 1 or quantity > most then
        answer = 15
      elseif mark then
        answer = {4, mark}
      elseif not have then
        answer = 9
      elseif have < quantity then
        answer = 5
      elseif saleFree < 1 then
        answer = {14, saleWait()}
      else
        local id = sub(token, tokenFrom)
        saleFree, saleCount = saleFree - 1, saleCount + 1
        units[item] = have - quantity
        taken[item] = (taken[item] or 0) + quantity
        call('SET', KEYS[firstMark + i], id, 'PXAT', keysUntil)
        call('HSET', token, 'state', 'occupied', 'userId', user, 'commodityId', ARGV[7 + item], 'quantity', quantity,
          'price', price, 'ts', nowText, 'epoch', meta[1], 'status', 'processing', 'version', '0')
        call('PEXPIREAT', token, keysUntil)
        userMark[user], fresh[token] = id, true
        accepted = accepted + 1
        zadd[2 * accepted - 1], zadd[2 * accepted] = nowText, id
        sadd[accepted] = user
        answer = 1
      end
    end
  end
  answers[i] = answer
end

if accepted > 0 then
  for item, count in pairs(taken) do
    call('DECRBY', KEYS[6 + item], count)
  end
  call('ZADD', KEYS[2], unpack(zadd))
  call('PEXPIREAT', KEYS[2], keysUntil)
  call('SADD', KEYS[6], unpack(sadd))
  call('PEXPIREAT', KEYS[6], keysUntil)
  if dropRate then
    call('DEL', KEYS[3])
  end
  call('HSET', KEYS[3], 'bucket', bucket, 'last', saleLast, 'count', saleCount)
  call('PEXPIRE', KEYS[3], 3000)
  seq = seq + 1
  call('HSET', KEYS[1], 'seq', seq)
end

local reply = {epoch, seq}
for i = 1, m do
  reply[2 + i] = meta[6 + 2 * i] or ''
end
for i = 1, n do
  reply[2 + m + i] = answers[i]
end
return reply
