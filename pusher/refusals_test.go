package pusher

import (
	"slices"
	"testing"
	"time"

	"seckill/internal/sale"
)

// refused makes a refusal as the database has it. Redis has nothing of it: the mark of a refused user is gone.
func refused(user int64, token string, ago time.Duration) sale.Decision {
	return sale.Decision{
		Reservation: sale.Reservation{
			Token: token, UserID: user, ActivityID: testSale, CommodityID: "C1", Quantity: 1, At: time.Now().Add(-ago),
		},
		Status: sale.StatusFailed, Reason: sale.ReasonExpired, Version: 1,
	}
}

// S29, R18: a refusal that was told while the pub/sub connection was lost reaches the socket all the same, once, and is
// told to who connects after it.
func TestS29_MissedRefusal(t *testing.T) {
	t.Parallel()
	w := newWorld()
	r := start(t, w, Config{Shards: 1, RefusalsEvery: 20 * time.Millisecond})
	c := r.connect(1)
	c.untilSynced()
	w.publish(result(1, "tok", 0, sale.StatusProcessing))
	c.next("result")
	r.bus.cut()
	w.change(func() { w.decisions = append(w.decisions, refused(1, "tok", 0)) })
	w.publish(result(1, "tok", 1, sale.StatusFailed)) // into the gap
	r.bus.confirm(0)
	if f := c.next("result"); f.RequestToken != "tok" || f.Status != sale.StatusFailed || f.Version != 1 {
		t.Errorf("got %v", f)
	}
	w.publish(result(1, "tok", 1, sale.StatusFailed), result(1, "next", 0, sale.StatusProcessing))
	if f := c.next("result"); f.RequestToken != "next" {
		t.Errorf("told again: %v", f)
	}
	if got := results(r.connect(1).untilSynced()); !slices.Equal(got, []string{"tok@1"}) {
		t.Errorf("a new socket was told %v", got)
	}
}

// S29: a refusal is not told to who has tried again since, nor when it is old.
func TestS29_RefusalOfAnEarlierTry(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.results = []sale.UserResult{result(1, "second", 0, sale.StatusProcessing)}
	w.decisions = []sale.Decision{refused(1, "first", time.Second), refused(2, "old", time.Hour), refused(3, "tok", time.Second)}
	r := start(t, w, Config{RefusalsEvery: 20 * time.Millisecond})
	last := r.connect(3)
	if got := results(last.untilSynced()); !slices.Equal(got, []string{"tok@1"}) {
		last.next("result") // connected before the first look: it is told by it
	}
	for user, want := range map[int64][]string{1: {"second@0"}, 2: nil} {
		c := r.connect(user)
		if got := results(c.untilSynced()); !slices.Equal(got, want) {
			t.Errorf("user %d was told %v, want %v", user, got, want)
		}
		w.publish(result(user, "end", 0, sale.StatusProcessing))
		if f := c.next("result"); f.RequestToken != "end" {
			t.Errorf("user %d was told %v", user, f)
		}
	}
}
