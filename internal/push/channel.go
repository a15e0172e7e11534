package push

import (
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

const (
	resultPrefix = "seckill:push:"
	livePrefix   = "seckill:live:"
	// livePattern matches the live channels of all sales.
	livePattern = livePrefix + "*"
)

// DefaultShards is how many hub shards there are unless configured: the same number for all roles of a deployment.
const DefaultShards = 16

// ShardOf is the hub shard of a user: xxhash64 of the decimal user id, modulo the number of shards. A load balancer
// that hashes the same way keeps each user on the node that has the shard subscribed.
func ShardOf(userID int64, shards int) int {
	var digits [20]byte
	return int(xxhash.Sum64(strconv.AppendInt(digits[:0], userID, 10)) % uint64(shards))
}

func resultChannel(shard int) string { return resultPrefix + strconv.Itoa(shard) }

func liveChannel(activityID string) string { return livePrefix + activityID }

// shardOfChannel is the inverse of resultChannel.
func shardOfChannel(channel string) (int, bool) {
	digits, ok := strings.CutPrefix(channel, resultPrefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n >= 0
}
