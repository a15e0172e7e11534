package push

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"seckill/internal/sale"
)

// presenceKey is a hash: of each pusher's node, who is connected there. It is no sale's, and lives while pushers do.
const presenceKey = "seckill:presence"

// PresenceEvery is how often a pusher tells its presence.
const PresenceEvery = 5 * time.Second

// presenceFor is how long that is believed: some rounds, and what the clocks of machines differ by.
const presenceFor = time.Minute

type wirePresence struct {
	Sockets int            `json:"sockets"`
	Users   int            `json:"users"`
	Viewers map[string]int `json:"viewers"`
	At      int64          `json:"at"`
}

// TellPresence notes who is connected to a pusher.
func (p *Publisher) TellPresence(ctx context.Context, at sale.Presence) error {
	pipe := p.rdb.Pipeline()
	pipe.HSet(ctx, presenceKey, at.Node, mustJSON(wirePresence{at.Sockets, at.Users, at.Viewers, sale.Millis(at.At)}))
	pipe.Expire(ctx, presenceKey, time.Hour)
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("tell presence: %w: %w", sale.ErrTransient, err)
	}
	return nil
}

// ForgetPresence is a pusher's end.
func (p *Publisher) ForgetPresence(ctx context.Context, node string) error {
	if err := p.rdb.HDel(ctx, presenceKey, node).Err(); err != nil {
		return fmt.Errorf("forget presence: %w: %w", sale.ErrTransient, err)
	}
	return nil
}

// Presences reads what the pushers have told within the last minute, in no order, and forgets what is old.
func (p *Publisher) Presences(ctx context.Context, now time.Time) ([]sale.Presence, error) {
	all, err := p.rdb.HGetAll(ctx, presenceKey).Result()
	if err != nil {
		return nil, fmt.Errorf("read presence: %w: %w", sale.ErrTransient, err)
	}
	var out []sale.Presence
	var old []string
	for node, text := range all {
		var w wirePresence
		if err := json.Unmarshal([]byte(text), &w); err != nil || now.Sub(sale.FromMillis(w.At)) > presenceFor {
			old = append(old, node)
			continue
		}
		out = append(out, sale.Presence{Node: node, Sockets: w.Sockets, Users: w.Users, Viewers: w.Viewers, At: sale.FromMillis(w.At)})
	}
	if len(old) > 0 {
		_ = p.rdb.HDel(ctx, presenceKey, old...) // of nodes that died; the next reader tries again
	}
	return out, nil
}
