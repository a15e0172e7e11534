-- audit.lua: one consistent look at a sale for the audit (R13). Writes nothing.
--
-- KEYS  1 meta   2 occupied, then m stock keys, then token hashes to tell the state of
-- ARGV  1 m   2 most occupied tokens to list
--
-- Returns {epoch, seq, state, occupied in all, occupied tokens,
--          m stock values or '', states or ''}.

local call = redis.call
local m, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local h = call('HMGET', KEYS[1], 'epoch', 'seq', 'state')
local stock = m > 0 and call('MGET', unpack(KEYS, 3, 2 + m)) or {}
for i = 1, m do
  stock[i] = stock[i] or ''
end
local states = {}
for i = 3 + m, #KEYS do
  local s = redis.pcall('HGET', KEYS[i], 'state')
  states[i - 2 - m] = type(s) == 'string' and s or ''
end
return {tonumber(h[1]) or 0, tonumber(h[2]) or 0, h[3] or '', call('ZCARD', KEYS[2]),
  call('ZRANGE', KEYS[2], 0, most - 1), stock, states}
