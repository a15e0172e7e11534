package push_test

import (
	"context"
	"testing"
	"time"

	"seckill/internal/push"
	"seckill/internal/sale"
)

// S28: operators see who is connected where; a pusher that died is not counted for long, one that stopped not at all.
func TestPresence(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p := push.NewPublisher(miniClient(t), 0)
	now := time.Now().Truncate(time.Millisecond)
	a := sale.Presence{Node: "a", Sockets: 3, Users: 2, Viewers: map[string]int{"S": 3}, At: now}
	must(t, p.TellPresence(ctx, a))
	must(t, p.TellPresence(ctx, sale.Presence{Node: "died", Sockets: 9, At: now.Add(-2 * time.Minute)}))
	must(t, p.TellPresence(ctx, sale.Presence{Node: "stops", Sockets: 9, At: now}))
	must(t, p.ForgetPresence(ctx, "stops"))
	got, err := p.Presences(ctx, now)
	must(t, err)
	if len(got) != 1 || got[0].Node != "a" || got[0].Sockets != 3 || got[0].Users != 2 || got[0].Viewers["S"] != 3 || !got[0].At.Equal(now) {
		t.Errorf("%+v", got)
	}
}
