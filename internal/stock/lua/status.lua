-- status.lua: write the status of decided tokens, only forward (R4).
--
-- KEYS  1 meta, then the token hash of every result
-- ARGV  1 expiry to use when the sale has no meta, epoch ms   2 n
--       then 9 for every result: state to write back, userId, commodityId, quantity, status, reason, orderNo,
--       payBefore, version
--
-- Returns {epoch, seq, usable 0 or 1, n codes}: 1 done (the hash now holds this version), 3 unknown (the hash was
-- missing and is written back), 5 stale (it holds a higher version).

local call, pcall = redis.call, redis.pcall
local n = tonumber(ARGV[2])
local meta = call('HMGET', KEYS[1], 'epoch', 'seq', 'state', 'keysUntil')
local epoch, seq = tonumber(meta[1]) or 0, tonumber(meta[2]) or 0
local keysUntil = tonumber(meta[4]) and meta[4] or ARGV[1]
local changed = false
local reply = {epoch, seq, epoch > 0 and meta[3] ~= 'rebuilding' and 1 or 0}

for i = 1, n do
  local key = KEYS[1 + i]
  local at = 2 + 9 * (i - 1)
  local h = pcall('HMGET', key, 'state', 'version')
  local version, have = tonumber(ARGV[at + 9]), nil
  if h.err then
    call('DEL', key)
    h = {}
  end
  have = tonumber(h[2]) or 0
  local code = 1
  if not h[1] then
    call('HSET', key, 'state', ARGV[at + 1], 'userId', ARGV[at + 2], 'commodityId', ARGV[at + 3],
      'quantity', ARGV[at + 4], 'status', ARGV[at + 5], 'reason', ARGV[at + 6], 'orderNo', ARGV[at + 7],
      'payBefore', ARGV[at + 8], 'version', ARGV[at + 9])
    call('PEXPIREAT', key, keysUntil)
    code, changed = 3, true
  elseif have > version then
    code = 5
  elseif have < version then
    call('HSET', key, 'status', ARGV[at + 5], 'reason', ARGV[at + 6], 'orderNo', ARGV[at + 7],
      'payBefore', ARGV[at + 8], 'version', ARGV[at + 9])
    changed = true
  end
  reply[3 + i] = code
end

if changed and epoch > 0 then
  seq = seq + 1
  call('HSET', KEYS[1], 'seq', seq)
  reply[2] = seq
end
return reply
