-- reserve.lua: pre-deduct for a batch of requests of one sale (S1, S4, S5, S6).
--
-- KEYS  1 meta   2 occupied   3 rate   4 blocked   5 eligible   6 participants
--       then m stock keys, one for each distinct commodity of the batch
--       then n user windows, n participation marks, n token hashes, one of each for every request
-- ARGV  1 now, epoch ms, 13 digits   2 m   3 n   4 requests a second of a user   5 reservations a second of the sale
--       6, 7 where the user id begins in a mark key, where the token begins in a token key (1 = first byte)
--       then m commodity ids, then m units: how many the batch asks for of each
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
-- The order of the checks: window of the user, token known, user lists, state of the sale, item and quantity, mark,
-- stock, window of the sale. Of two requests in one batch the second finds what the first one left.
--
-- Everything that can fail because of a key's type is read before the first write, and the first write is one that
-- Redis refuses at maxmemory, so that the script happens whole or not at all (FS-015). A second run with the same
-- tokens answers "repeat" and takes nothing, so that a client library may retry it (FS-013). Ids stay strings:
-- a number has 53 bits (FS-023).
--
-- What makes a batch cheap (P3): what is shared is read and written once for all. A request that nothing speaks
-- against is tried at once, and the writes that would make it are its last checks: SET NX finds a mark, COPY finds a
-- token that is known. Only when one does is the request looked at in detail. COPY takes the hash of an earlier request
-- of the batch, lifetime included, in place of a command of twenty words and a PEXPIREAT.
--
-- Comparisons inside a chain of "and" and several assignments from a call at once are spelled out on purpose: the Lua
-- of the embedded stand-in gets them wrong.

local call, pcall = redis.call, redis.pcall
local floor, sub, find = math.floor, string.sub, string.find
local now, m, n = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local userLimit, saleLimit = tonumber(ARGV[4]), tonumber(ARGV[5])
local userFrom, tokenFrom = tonumber(ARGV[6]), tonumber(ARGV[7])
local nowText = ARGV[1]
local rateAt, markAt, tokenAt = 6 + m, 6 + m + n, 6 + m + 2 * n -- the keys of request i are at these + i
local codeAt = 7 + 2 * m                                        -- and its number in ARGV

-- Read what the batch shares.
local fields = {'epoch', 'seq', 'state', 'startsAt', 'endsAt', 'keysUntil', 'allowList'}
for i = 1, m do
  fields[6 + 2 * i] = 'price:' .. ARGV[7 + i]
  fields[7 + 2 * i] = 'max:' .. ARGV[7 + i]
end
local meta = call('HMGET', KEYS[1], unpack(fields))
local epoch, seq = tonumber(meta[1]) or 0, tonumber(meta[2]) or 0
local state, keysUntil = meta[3], meta[6]
local startsAt, endsAt = tonumber(meta[4]), tonumber(meta[5])
local closed -- the answer to everyone while the sale does not sell
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

local values = call('MGET', unpack(KEYS, 7, markAt)) -- stock and user windows; nil for a key of another type
local units, taken = {}, {}                          -- units left; false when the key is missing or no plain integer
local scarce = closed ~= nil                         -- not everyone in the batch can get what they ask for
for i = 1, m do
  local v = values[i]
  units[i] = v and #v <= 15 and (v == '0' or find(v, '^[1-9]%d*$')) and tonumber(v) or false
  scarce = scarce or not units[i] or units[i] < tonumber(ARGV[7 + m + i])
end
-- Then most requests will be refused, and looking at all of them at once is cheaper than one by one.
local marks, someKnown
if scarce then
  marks = call('MGET', unpack(KEYS, markAt + 1, tokenAt))
  someKnown = call('EXISTS', unpack(KEYS, tokenAt + 1, tokenAt + n)) > 0
end
local someBlocked = call('SCARD', KEYS[4]) > 0
local someEligible = call('SCARD', KEYS[5]) > 0
local allowList = meta[7] == '1'
call('ZCARD', KEYS[2])
call('SCARD', KEYS[6])

-- The sale's window: counts of this and the last second; the last one fades as this one passes.
local bucket = floor(now / 1000)
local left = 1000 - (now - bucket * 1000)
local saleCount, saleLast = 0, 0
local w = pcall('HMGET', KEYS[3], 'bucket', 'last', 'count')
local dropRate = w.err ~= nil -- another type there: start anew (FS-032)
if not dropRate then
  local b = tonumber(w[1])
  if b == bucket - 1 then
    saleLast = tonumber(w[3]) or 0
  elseif b and b >= bucket and b <= bucket + 2 then
    if b > bucket then -- another gateway's clock is ahead: use its second
      bucket, left = b, 1000
    end
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

-- The state of a token that is known already, as far as this user may see it; nil when it is not known.
local function known(i, user, commodity, quantity)
  local h = pcall('HMGET', KEYS[tokenAt + i], 'userId', 'state', 'commodityId', 'quantity', 'price', 'ts',
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
  if h[3] ~= commodity or tonumber(h[4]) ~= quantity then
    return 3
  end
  local answer = {2}
  for k = 2, 12 do
    answer[k] = h[k] or ''
  end
  return answer
end

local windows = {} -- by user: what this batch wrote
local models = {}  -- by number of the request: a token hash to copy
local accepted = 0
local zadd, sadd = {}, {}
local reply = {epoch, seq}
for i = 1, m do
  reply[2 + i] = meta[6 + 2 * i] or ''
end

-- The answer to a request that was not accepted at the first try.
local function refuse(i, user, item, quantity)
  local moved = not scarce or accepted > 0 -- what was read for all is not there, or no longer true
  if someKnown or moved then
    local answer = known(i, user, ARGV[7 + item], quantity)
    if answer then
      return answer
    end
  end
  if someBlocked and call('SISMEMBER', KEYS[4], user) == 1 then
    return 11
  end
  if allowList and not (someEligible and call('SISMEMBER', KEYS[5], user) == 1) then
    return 12
  end
  if closed then
    return closed
  end
  local most = tonumber(meta[7 + 2 * item])
  if not meta[6 + 2 * item] or not most then
    return 10
  end
  if quantity < 1 or quantity > most then
    return 15
  end
  local mark = marks and marks[i]
  if not mark and moved then
    mark = call('MGET', KEYS[markAt + i])[1]
  end
  if mark then
    return {4, mark}
  end
  local have = units[item]
  if not have then
    return 9
  end
  if have < quantity then
    return 5
  end
  return {14, saleWait()}
end

-- Makes the first token hash of a number of the request, and tells whether it is new.
local function create(token, code, user, item, quantity)
  if call('EXISTS', token) == 1 then
    return false
  end
  call('HSET', token, 'state', 'occupied', 'userId', user, 'commodityId', ARGV[7 + item], 'quantity', tostring(quantity),
    'price', meta[6 + 2 * item], 'ts', nowText, 'epoch', meta[1], 'status', 'processing', 'version', '0')
  call('PEXPIREAT', token, keysUntil)
  models[code] = token
  return true
end

-- The window of a user: the times of the last requests that passed, 13 digits each, oldest first. Returns the window
-- with this request in it, or nil and after how many ms there is room.
local windowSize = 13 * userLimit
local function count(window)
  if #window > windowSize then
    window = sub(window, -windowSize)
  end
  local size = #window
  local oldest = tonumber(sub(window, 1, 13))
  if size % 13 ~= 0 or not oldest or oldest > now + 2000 then
    return nowText -- it was nonsense, or a time that no gateway's clock can be at (FS-032)
  end
  if size < windowSize then
    return window .. nowText
  end
  if now - oldest < 1000 then
    return nil, 1000 - (now - oldest)
  end
  return sub(window, 14) .. nowText
end

-- Whether something speaks against a user before stock is looked at.
local lookFirst = scarce or someBlocked or allowList
local function unwelcome(i, user)
  if closed or marks and marks[i] then
    return true
  end
  if someKnown and call('EXISTS', KEYS[tokenAt + i]) == 1 then
    return true
  end
  if someBlocked and call('SISMEMBER', KEYS[4], user) == 1 then
    return true
  end
  return allowList and not (someEligible and call('SISMEMBER', KEYS[5], user) == 1)
end

local lastCode, item, quantity, fits, model
for i = 1, n do
  local code = ARGV[codeAt + i]
  if code ~= lastCode then
    lastCode = code
    local number = tonumber(code)
    item = floor(number / 1000)
    quantity = number - item * 1000
    local most = tonumber(meta[7 + 2 * item])
    fits = false
    if meta[6 + 2 * item] and most and units[item] then
      fits = quantity >= 1 and quantity <= most
    end
    model = models[code]
  end
  local user = sub(KEYS[markAt + i], userFrom)
  local window = windows[user] or values[m + i]
  local wait
  if window then
    window, wait = count(window)
  else
    window = nowText
  end
  local answer
  if wait then
    answer = {13, wait}
  else
    call('SET', KEYS[rateAt + i], window, 'PX', '3000')
    windows[user] = window
    local try = false
    if fits then
      try = saleFree >= 1 and units[item] >= quantity
    end
    if try and lookFirst then
      try = not unwelcome(i, user)
    end
    if try then
      local mark, token = KEYS[markAt + i], KEYS[tokenAt + i]
      local id = sub(token, tokenFrom)
      if call('SET', mark, id, 'NX', 'PXAT', keysUntil) then
        local made
        if model then
          made = model ~= token and call('COPY', model, token) == 1
          if made then
            call('HSET', token, 'userId', user)
          end
        else
          made = create(token, code, user, item, quantity)
          model = models[code]
        end
        if made then
          saleFree, saleCount = saleFree - 1, saleCount + 1
          units[item] = units[item] - quantity
          taken[item] = (taken[item] or 0) + quantity
          accepted = accepted + 1
          zadd[2 * accepted - 1], zadd[2 * accepted] = nowText, id
          sadd[accepted] = user
          answer = 1
        else
          call('DEL', mark)
        end
      end
    end
    answer = answer or refuse(i, user, item, quantity)
  end
  reply[2 + m + i] = answer
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
  call('PEXPIRE', KEYS[3], '3000')
  seq = seq + 1
  call('HSET', KEYS[1], 'seq', seq)
  reply[2] = seq
end
return reply
