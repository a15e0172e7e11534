package push

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"seckill/internal/sale"
)

// maxPerMessage is the most results in one message: about 20 KiB, far below what slows Redis down.
const maxPerMessage = 64

// Publisher sends results and live state. It is safe for concurrent use.
type Publisher struct {
	rdb     redis.UniversalClient
	shards  int
	sharded bool // results go by SPUBLISH, to the node of the channel's slot
}

// NewPublisher makes a Publisher for that many hub shards, DefaultShards when it is not positive. The client stays
// the caller's to close.
func NewPublisher(rdb redis.UniversalClient, shards int) *Publisher {
	if shards <= 0 {
		shards = DefaultShards
	}
	_, cluster := rdb.(*redis.ClusterClient)
	return &Publisher{rdb: rdb, shards: shards, sharded: cluster}
}

// publish tells a shard, as the subscriber of this package listens.
func (p *Publisher) publish(ctx context.Context, pipe redis.Pipeliner, shard int, message []byte) {
	if p.sharded {
		pipe.SPublish(ctx, resultChannel(shard), message)
	} else {
		pipe.Publish(ctx, resultChannel(shard), message)
	}
}

// Results tells results to the shards of their users: one message a shard (more above 64 results), all in one pipeline.
// The results of one user keep their order. An error means that some may not have been told; telling them again is
// harmless.
func (p *Publisher) Results(ctx context.Context, rs []sale.UserResult) error {
	if len(rs) == 0 {
		return nil
	}
	byShard := make([][]sale.UserResult, p.shards)
	for i := range rs {
		shard := ShardOf(rs[i].UserID, p.shards)
		byShard[shard] = append(byShard[shard], rs[i])
	}
	pipe := p.rdb.Pipeline()
	for shard, of := range byShard {
		for from := 0; from < len(of); from += maxPerMessage {
			part := of[from:min(from+maxPerMessage, len(of))]
			p.publish(ctx, pipe, shard, appendMessage(make([]byte, 0, 32+300*len(part)), part))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("publish %d results: %w: %w", len(rs), sale.ErrTransient, err)
	}
	return nil
}

// Places tells places in waitlists, as Results tells results.
func (p *Publisher) Places(ctx context.Context, ps []sale.Place) error {
	if len(ps) == 0 {
		return nil
	}
	byShard := make([][]sale.Place, p.shards)
	for _, place := range ps {
		shard := ShardOf(place.UserID, p.shards)
		byShard[shard] = append(byShard[shard], place)
	}
	pipe := p.rdb.Pipeline()
	for shard, of := range byShard {
		for from := 0; from < len(of); from += maxPerMessage {
			p.publish(ctx, pipe, shard, appendPlaces(of[from:min(from+maxPerMessage, len(of))]))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("publish %d places: %w: %w", len(ps), sale.ErrTransient, err)
	}
	return nil
}

// Live tells the state of a sale to every viewer. The caller keeps to the agreed four a second.
func (p *Publisher) Live(ctx context.Context, l sale.Live) error {
	if err := p.rdb.Publish(ctx, liveChannel(l.ActivityID), appendLive(&l)).Err(); err != nil {
		return fmt.Errorf("publish live state: %w: %w", sale.ErrTransient, err)
	}
	return nil
}
