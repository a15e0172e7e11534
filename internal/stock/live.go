package stock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"seckill/internal/sale"
)

// States of a sale in its meta. A client's "open" and "scheduled" follow from live and the clock.
const (
	metaRebuilding = "rebuilding"
	metaDraft      = "draft"
	metaLive       = "live"
	metaPaused     = "paused"
	metaEnded      = "ended"
)

// metaState is the state that meta holds for an activity of the database.
func metaState(st sale.State) string {
	switch st {
	case sale.StateScheduled, sale.StateOpen:
		return metaLive
	case sale.StatePaused:
		return metaPaused
	case sale.StateEnded, sale.StateSettled:
		return metaEnded
	}
	return metaDraft
}

// Live returns state and remaining stock of sales, in two pipelines. A sale without meta, being rebuilt, or with a
// stock key that is missing or no plain integer is not_ready; units that can be read are given all the same.
func (s *Store) Live(ctx context.Context, activityIDs []string) (map[string]sale.Live, error) {
	metas := make([]*redis.MapStringStringCmd, len(activityIDs))
	ks := make([]keys, len(activityIDs))
	floors := make([]position, len(activityIDs))
	for i, id := range activityIDs {
		k, err := keysOf(id)
		if err != nil {
			return nil, fmt.Errorf("read live state: %w", err)
		}
		ks[i], floors[i] = k, s.floor(id)
	}
	err := s.pipeline(ctx, len(ks), func(p redis.Pipeliner, from, to int) {
		for i := from; i < to; i++ {
			metas[i] = p.HGetAll(ctx, ks[i].meta())
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read live state: %w", err)
	}
	now := s.o.Now().UTC()
	lives := make([]sale.Live, len(ks))
	stocks := make([]*redis.SliceCmd, len(ks))
	items := make([][]string, len(ks))
	for i := range ks {
		lives[i], items[i] = liveOf(activityIDs[i], metas[i].Val(), now)
		s.note(activityIDs[i], floors[i], lives[i].Epoch, lives[i].Seq)
	}
	err = s.pipeline(ctx, len(ks), func(p redis.Pipeliner, from, to int) {
		for i := from; i < to; i++ {
			if len(items[i]) == 0 {
				continue
			}
			names := make([]string, len(items[i]))
			for j, c := range items[i] {
				names[j] = ks[i].stock(c)
			}
			stocks[i] = p.MGet(ctx, names...)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read live state: %w", err)
	}
	out := make(map[string]sale.Live, len(ks))
	for i, id := range activityIDs {
		addUnits(&lives[i], items[i], stocks[i])
		out[id] = lives[i]
	}
	return out, nil
}

// liveOf reads a meta hash, and returns the commodities it lists.
func liveOf(activityID string, meta map[string]string, now time.Time) (sale.Live, []string) {
	l := sale.Live{ActivityID: activityID, State: sale.StateNotReady, At: now}
	l.Epoch, l.Seq = integer(meta["epoch"]), integer(meta["seq"])
	l.StartsAt, l.EndsAt = sale.FromMillis(integer(meta["startsAt"])), sale.FromMillis(integer(meta["endsAt"]))
	a := sale.Activity{StartsAt: l.StartsAt, EndsAt: l.EndsAt}
	switch meta["state"] {
	case metaLive:
		a.State = sale.StateScheduled
	case metaPaused:
		a.State = sale.StatePaused
	case metaEnded:
		a.State = sale.StateEnded
	default:
		return l, nil
	}
	l.State = a.StateAt(now)
	if meta["items"] == "" {
		l.State = sale.StateNotReady
		return l, nil
	}
	return l, strings.Split(meta["items"], ",")
}

// addUnits adds the stock to a live state, as strictly as the scripts read it.
func addUnits(l *sale.Live, items []string, cmd *redis.SliceCmd) {
	if cmd == nil {
		return
	}
	v := cmd.Val()
	for j, c := range items {
		units, ok := int64(0), false
		if j < len(v) {
			units, ok = plainUnits(text(v[j]))
		}
		if !ok {
			l.State = sale.StateNotReady
			continue
		}
		l.Items = append(l.Items, sale.Remaining{CommodityID: c, Units: units})
	}
}

// plainUnits reads a stock value the way the scripts do: digits without sign or leading zero, at most 15 of them.
func plainUnits(v string) (int64, bool) {
	if v == "" || len(v) > 15 || v[0] == '0' && v != "0" {
		return 0, false
	}
	for i := range len(v) {
		if v[i] < '0' || v[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(v, 10, 64)
	return n, err == nil
}
