-- restore.lua: write back decided tokens during a rebuild (R10, R11).
--
-- KEYS  1 meta   2 participants, then for every entry its participation mark and its token hash
-- ARGV  1 epoch   2 n
--       then 13 for every entry: state, token the mark shall name or '', userId, commodityId, quantity, price, ts,
--       epoch, status, reason, orderNo, payBefore, version
--
-- Returns {outcome, epoch, seq}: 1 written, 2 conflict: meta is not rebuilding under this epoch; nothing is written.
--
-- The state always follows the snapshot; status and version never replace a higher version, which a settle or a
-- payment may have written since the snapshot.

local call = redis.call
local h = call('HMGET', KEYS[1], 'epoch', 'seq', 'state', 'keysUntil')
local epoch, seq = tonumber(h[1]) or 0, tonumber(h[2]) or 0
if epoch ~= tonumber(ARGV[1]) or h[3] ~= 'rebuilding' then
  return {2, epoch, seq}
end
local keysUntil = h[4]
local users = {}
for i = 1, tonumber(ARGV[2]) do
  local mark, key = KEYS[1 + 2 * i], KEYS[2 + 2 * i]
  local at = 2 + 13 * (i - 1)
  local have = redis.pcall('HGET', key, 'version')
  if type(have) == 'table' and have.err then
    call('DEL', key)
    have = false
  end
  call('HSET', key, 'state', ARGV[at + 1], 'userId', ARGV[at + 3], 'commodityId', ARGV[at + 4],
    'quantity', ARGV[at + 5], 'price', ARGV[at + 6], 'ts', ARGV[at + 7], 'epoch', ARGV[at + 8])
  if not have or (tonumber(have) or 0) <= tonumber(ARGV[at + 13]) then
    call('HSET', key, 'status', ARGV[at + 9], 'reason', ARGV[at + 10], 'orderNo', ARGV[at + 11],
      'payBefore', ARGV[at + 12], 'version', ARGV[at + 13])
  end
  call('PEXPIREAT', key, keysUntil)
  if ARGV[at + 2] ~= '' then
    call('SET', mark, ARGV[at + 2], 'PXAT', keysUntil)
    users[#users + 1] = ARGV[at + 3]
  end
end
if #users > 0 then
  call('SADD', KEYS[2], unpack(users))
  call('PEXPIREAT', KEYS[2], keysUntil)
end
seq = seq + 1
call('HSET', KEYS[1], 'seq', seq)
return {1, epoch, seq}
