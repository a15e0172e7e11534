package pusher

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"seckill/hub"
	"seckill/internal/sale"
)

// S28, S29, FS-071: what was decided before the socket opened is told on connect: every result of the user, the state of
// the sale looked at, then synced.
func TestFS071_StateIsToldOnConnect(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.addSale("OTHER")
	other := result(1, "tokB", 3, sale.StatusPaid)
	other.ActivityID = "OTHER"
	w.results = []sale.UserResult{result(1, "tokA", 1, sale.StatusPendingPayment), other}
	r := start(t, w, Config{})
	began := time.Now()
	frames := r.connect(1).untilSynced()
	if took := time.Since(began); took > time.Second {
		t.Errorf("state after %v, want within 1 s", took)
	}
	got := results(frames)
	slices.Sort(got)
	if !slices.Equal(got, []string{"tokA@1", "tokB@3"}) {
		t.Errorf("results %v", got)
	}
	if want := []string{"result", "result", "activity", "synced"}; !slices.Equal(types(frames), want) {
		t.Errorf("frames %v, want %v", types(frames), want)
	}
	live := frames[2]
	if live.ActivityID != testSale || live.State != sale.StateOpen || len(live.Items) != 1 || live.Items[0].Remaining != 7 {
		t.Errorf("activity frame %v", live)
	}
	if now := time.Now().UnixMilli(); frames[3].ServerTime < now-60_000 || frames[3].ServerTime > now {
		t.Errorf("serverTime %d", frames[3].ServerTime)
	}
}

// FS-071, S29: the state is read only after the shard is subscribed, so that nothing falls between the two.
func TestFS071_SubscribeThenRead(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.manual = true
	r := start(t, w, Config{SubscribeWait: patience})
	c := r.connect(1)
	shard := <-r.bus.asked
	if shard != r.hub.ShardOf(1) {
		t.Fatalf("shard %d was subscribed, want %d", shard, r.hub.ShardOf(1))
	}
	w.change(func() {
		if w.stateReads != 0 {
			t.Errorf("the state was read before the subscription stood")
		}
		// Decided while the subscription is under way: only the state has it.
		w.results = append(w.results, result(1, "tok", 1, sale.StatusPendingPayment))
	})
	if code, body := r.get("/readyz"); code != 503 || !strings.Contains(body, "not subscribed") {
		t.Errorf("readyz while the shard is not subscribed: %d %s", code, body)
	}
	r.bus.confirm(shard)
	if got := results(c.untilSynced()); !slices.Equal(got, []string{"tok@1"}) {
		t.Errorf("results %v", got)
	}
	if code, body := r.get("/readyz"); code != 200 {
		t.Errorf("readyz: %d %s", code, body)
	}
}

// S29: without a subscription a socket does not wait for ever; its state is read, and read again when the subscription
// comes.
func TestS29_LateSubscriptionReadsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.manual = true
	r := start(t, w, Config{SubscribeWait: 20 * time.Millisecond})
	c := r.connect(1)
	c.untilSynced()
	w.change(func() { w.results = append(w.results, result(1, "tok", 1, sale.StatusPendingPayment)) })
	r.bus.confirm(r.hub.ShardOf(1))
	if f := c.next("result"); f.RequestToken != "tok" {
		t.Errorf("got %v", f)
	}
}

// S29: after the pub/sub connection was lost, the users of its shards get what was told meanwhile, once.
func TestS29_ResubscriptionReadsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld()
	r := start(t, w, Config{Shards: 2, ReadBatch: 3})
	var clients []*client
	for user := int64(1); user <= 10; user++ {
		c := r.connect(user)
		c.untilSynced()
		w.publish(result(user, "tok", 0, sale.StatusProcessing))
		c.next("result")
		clients = append(clients, c)
	}
	r.bus.cut()
	if code, _ := r.get("/readyz"); code != 503 {
		t.Errorf("readyz without subscriptions: %d", code)
	}
	w.change(func() {
		for user := int64(1); user <= 10; user++ {
			w.results = append(w.results, result(user, "tok", 1, sale.StatusSoldOut))
		}
	})
	w.publish(result(1, "tok", 1, sale.StatusSoldOut)) // into the gap
	for range 2 {
		r.bus.confirm(0)
		r.bus.confirm(1)
	}
	for i, c := range clients {
		if f := c.next("result"); f.Version != 1 || f.Status != sale.StatusSoldOut {
			t.Errorf("user %d got %v", i+1, f)
		}
		c.send(`{"type":"sync"}`)
		if got := results(c.untilSynced()); !slices.Equal(got, []string{"tok@1"}) {
			t.Errorf("user %d got %v after the sync, want the state once", i+1, got)
		}
	}
}

// S28, FS-084: a status change is pushed; one that comes late or again is not.
func TestFS084_LateAndRepeatedResults(t *testing.T) {
	t.Parallel()
	w := newWorld()
	r := start(t, w, Config{})
	c := r.connect(1)
	c.untilSynced()
	w.publish(result(1, "tok", 1, sale.StatusPendingPayment))
	w.publish(result(1, "tok", 0, sale.StatusProcessing))
	w.publish(result(1, "tok", 1, sale.StatusPendingPayment))
	w.publish(result(1, "tok", 2, sale.StatusPaid))
	w.publish(result(1, "end", 1, sale.StatusPaid))
	var got []string
	for !slices.Contains(got, "end@1") {
		got = append(got, results([]frame{c.next("result")})...)
	}
	// Version 1 may have been replaced by 2 while it waited; nothing comes twice or backwards.
	if !slices.Equal(got, []string{"tok@1", "tok@2", "end@1"}) && !slices.Equal(got, []string{"tok@2", "end@1"}) {
		t.Errorf("got %v", got)
	}
}

// S29: a sync reads the state again and repeats it, also what the socket was told before.
func TestS29_SyncRepeatsTheState(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.results = []sale.UserResult{result(1, "tok", 1, sale.StatusPendingPayment)}
	r := start(t, w, Config{})
	c := r.connect(1)
	c.untilSynced()
	w.change(func() { w.results[0].Version, w.results[0].Status = 2, sale.StatusPaid })
	for range 3 {
		c.send(`{"type":"sync"}`)
		frames := c.untilSynced()
		if got := results(frames); !slices.Equal(got, []string{"tok@2"}) || frames[len(frames)-2].Type != "activity" {
			t.Errorf("got %v", frames)
		}
	}
}

// FS-076: nobody is told another's result, neither by push, nor by the state read, even if a store mixes users up.
func TestFS076_NobodyGetsAnothersResult(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.results = []sale.UserResult{result(1, "of1", 1, sale.StatusPaid)}
	w.decisions = []sale.Decision{{Reservation: sale.Reservation{UserID: 1, Token: "of1", ActivityID: testSale}, Version: 1}}
	r := start(t, w, Config{Shards: 1})
	a, b := r.connect(1), r.connect(2)
	if got := results(a.untilSynced()); !slices.Equal(got, []string{"of1@1"}) {
		t.Errorf("user 1 got %v", got)
	}
	if got := results(b.untilSynced()); len(got) != 0 {
		t.Errorf("user 2 got %v", got)
	}
	w.publish(result(1, "of1", 2, sale.StatusPaid), result(2, "of2", 1, sale.StatusSoldOut))
	r.bus.confirm(0)
	if f := b.next("result"); f.RequestToken != "of2" {
		t.Errorf("user 2 got %v", f)
	}
	b.send(`{"type":"sync"}`)
	b.send(`{"type":"subscribe","userId":"1","channel":"seckill:push:0","requestToken":"of1"}`)
	if got := results(b.untilSynced()); len(got) != 0 {
		t.Errorf("user 2 got %v", got)
	}
}

// FS-074: three sockets of one user on two pushers; one is closed; the other two get the result.
func TestFS074_SeveralSocketsOnTwoPushers(t *testing.T) {
	t.Parallel()
	w := newWorld()
	p, q := start(t, w, Config{}), start(t, w, Config{})
	a, b, c := p.connect(1), p.connect(1), q.connect(1)
	for _, x := range []*client{a, b, c} {
		x.untilSynced()
	}
	a.conn.Close()
	eventually(t, "the closed socket is gone", func() bool { return p.hub.Sockets() == 1 })
	w.publish(result(1, "tok", 1, sale.StatusPaid))
	for _, x := range []*client{b, c} {
		if f := x.next("result"); f.RequestToken != "tok" {
			t.Errorf("got %v", f)
		}
	}
	if len(a.frames) != 0 {
		t.Errorf("the closed socket got %v", <-a.frames)
	}
}

// FS-083: text that is no UTF-8 reaches the browser as valid UTF-8, and the socket stays.
func TestFS083_FramesAreValidUTF8(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.live[testSale] = sale.Live{ActivityID: testSale, State: sale.StateOpen, Items: []sale.Remaining{{CommodityID: "C\xff", Units: 1}}}
	r := start(t, w, Config{})
	c := r.connect(1)
	frames := c.untilSynced()
	bad := result(1, "tok", 1, sale.StatusFailed)
	bad.CommodityID, bad.Reason = "C\xff\xc3", "cut \xe4\xbd"
	w.publish(bad)
	frames = append(frames, c.next("result"))
	for _, f := range frames {
		if !utf8.ValidString(f.raw) {
			t.Errorf("frame %q is no UTF-8", f.raw)
		}
	}
	w.publish(result(1, "tok", 2, sale.StatusPaid))
	c.next("result")
}

// S29, S31: when Redis fails, the database answers; when both fail, nothing is called synced.
func TestS31_StateFromTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.decisions = []sale.Decision{{
		Reservation: sale.Reservation{UserID: 1, Token: "tok", ActivityID: testSale, CommodityID: "C1", Quantity: 1},
		Ordered:     true, OrderNo: "12301", Status: sale.StatusPaid, Version: 2,
	}}
	r := start(t, w, Config{})
	if got := results(r.connect(1).untilSynced()); !slices.Equal(got, []string{"tok@2"}) {
		t.Errorf("a miss in Redis: %v", got)
	}
	w.change(func() { w.statesErr = errors.New("redis is down") })
	if got := results(r.connect(1).untilSynced()); !slices.Equal(got, []string{"tok@2"}) {
		t.Errorf("Redis down: %v", got)
	}
	w.change(func() { w.ledgerErr = errors.New("database is down") })
	c := r.connect(1)
	if code := c.end(); code != 1013 {
		t.Errorf("both down: closed %d, want 1013", code)
	}
	if len(c.frames) != 0 {
		t.Errorf("both down: got %v", <-c.frames)
	}
}

// The database is spared: users whom Redis does not know cost it a bounded number of reads, and are synced all the same.
func TestLookUpsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld()
	r := start(t, w, Config{LedgerReadsPerSecond: 1})
	for user := int64(1); user <= 20; user++ {
		r.connect(user).untilSynced()
	}
	w.change(func() {
		if w.lookUps < 1 || w.lookUps > 10 { // one a second, on a slow machine
			t.Errorf("%d look-ups for 20 sockets", w.lookUps)
		}
	})
}

// R10: when the data of a sale in Redis was rebuilt, all users are read again, and viewers see its state change.
func TestR10_RebuildReadsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld()
	r := start(t, w, Config{CatalogRefresh: 10 * time.Millisecond})
	c := r.connect(1)
	c.untilSynced()
	ready := w.live[testSale]
	w.change(func() { w.live[testSale] = sale.Live{ActivityID: testSale, State: sale.StateNotReady} })
	for c.next("activity").State != sale.StateNotReady {
	}
	w.change(func() {
		ready.Epoch++
		w.live[testSale] = ready
		w.results = append(w.results, result(1, "tok", 1, sale.StatusPendingPayment))
	})
	if f := c.next("result"); f.RequestToken != "tok" {
		t.Errorf("got %v", f)
	}
}

// The state of a sale goes to those who look at it, the newest if they are slow; a read that began before it is no news.
func TestLiveState(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.addSale("OTHER")
	r := start(t, w, Config{CatalogRefresh: time.Hour})
	a, b := r.connect(1), r.connectWith(2, dialer{query: "activity=OTHER"})
	a.untilSynced()
	b.untilSynced()
	eventually(t, "both sales are subscribed", func() bool { return r.bus.viewing(testSale) && r.bus.viewing("OTHER") })
	began := time.Now()
	for i := range int64(100) {
		r.bus.h.OnLive(sale.Live{ActivityID: testSale, State: sale.StateOpen, Items: []sale.Remaining{{CommodityID: "C1", Units: 100 - i}}})
	}
	r.board.read(w.live[testSale], sale.StateOpen, began)
	for last := int64(101); last > 1; {
		f := a.next("activity")
		if got := f.Items[0].Remaining; got >= last {
			t.Fatalf("remaining went from %d to %d", last, got)
		} else {
			last = got
		}
	}
	b.send(`{"type":"sync"}`)
	frames := b.untilSynced()
	if frames[0].Type != "activity" || frames[0].ActivityID != "OTHER" || len(frames) != 2 {
		t.Errorf("the viewer of another sale got %v", frames)
	}
}

// Viewers of a busy sale get what is published, 4 a second, and not what the pusher reads besides; of one of which nothing is
// published they get that.
func TestLiveStateIsPaced(t *testing.T) {
	t.Parallel()
	w := newWorld()
	r := start(t, w, Config{CatalogRefresh: 5 * time.Millisecond})
	c := r.connect(1)
	c.untilSynced()
	const published = 8
	for i := range int64(published) {
		live := sale.Live{ActivityID: testSale, State: sale.StateOpen, Epoch: 1, Items: []sale.Remaining{{CommodityID: "C1", Units: 1000 - 10*i}}}
		r.bus.h.OnLive(live)
		w.change(func() {
			live.Items = []sale.Remaining{{CommodityID: "C1", Units: 995 - 10*i}} // more was sold since
			w.live[testSale] = live
		})
		time.Sleep(250 * time.Millisecond)
	}
	if n := len(c.frames); n > published+2 { // one or two on a machine that stands still for a moment
		t.Errorf("%d states came in the time of %d publications", n, published)
	}
	for c.next("activity").Items[0].Remaining != 995-10*(published-1) {
	}
}

// S29: a result that was lost without a sign is found by the check, for one user as for many.
func TestS29_CheckFindsWhatWasLost(t *testing.T) {
	t.Parallel()
	for _, users := range []int64{1, checkUsers + 1} {
		w := newWorld()
		r := start(t, w, Config{CheckEvery: 200 * time.Millisecond, MaxSocketsPerAddress: 100})
		var clients []*client
		for user := int64(1); user <= users; user++ {
			c := r.connect(user)
			c.untilSynced()
			clients = append(clients, c)
		}
		w.change(func() {
			for user := int64(1); user <= users; user++ {
				w.results = append(w.results, result(user, fmt.Sprint("tok", user), 1, sale.StatusPaid))
			}
		})
		for i, c := range clients {
			if f := c.next("result"); f.RequestToken != fmt.Sprint("tok", i+1) {
				t.Errorf("user %d got %v", i+1, f)
			}
		}
	}
}

// A shard and a sale are subscribed only while they have a client.
func TestSubscriptionsFollowTheClients(t *testing.T) {
	t.Parallel()
	w := newWorld()
	r := start(t, w, Config{UnsubscribeAfter: time.Millisecond})
	c := r.connect(1)
	c.untilSynced()
	shard := r.hub.ShardOf(1)
	eventually(t, "subscribed", func() bool { return r.bus.Subscribed(shard) && r.bus.viewing(testSale) })
	for i := range r.hub.Shards() {
		if i != shard && r.bus.Subscribed(i) {
			t.Errorf("shard %d is subscribed without a client", i)
		}
	}
	c.conn.Close()
	eventually(t, "unsubscribed", func() bool { return !r.bus.Subscribed(shard) && !r.bus.viewing(testSale) })
	d := r.connect(1)
	d.untilSynced()
	w.publish(result(1, "tok", 1, sale.StatusPaid))
	d.next("result")
}

// A sale that was warmed up, ended, or cleaned up is told as the database says; one that should sell but is not in Redis
// is not ready.
func TestStatesOfSales(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, tc := range []struct {
		stored sale.State
		ends   time.Duration
		redis  sale.State
		want   sale.State
	}{
		{sale.StateScheduled, time.Hour, sale.StateOpen, sale.StateOpen},
		{sale.StateScheduled, time.Hour, sale.StateNotReady, sale.StateNotReady},
		{sale.StateDraft, time.Hour, sale.StateNotReady, sale.StateDraft},
		{sale.StatePaused, time.Hour, sale.StatePaused, sale.StatePaused},
		{sale.StateScheduled, -time.Minute, sale.StateNotReady, sale.StateEnded},
		{sale.StateSettled, -time.Minute, sale.StateNotReady, sale.StateSettled},
		{sale.StateSettled, -1000 * time.Hour, sale.StateNotReady, sale.StateSettled},
	} {
		t.Run(fmt.Sprint(tc.stored, tc.ends, tc.redis), func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.activities[testSale].State, w.activities[testSale].EndsAt = tc.stored, now.Add(tc.ends)
			w.live[testSale] = sale.Live{ActivityID: testSale, State: tc.redis}
			r := start(t, w, Config{})
			if f := r.connect(1).next("activity"); f.State != tc.want {
				t.Errorf("state %s, want %s", f.State, tc.want)
			}
		})
	}
}

// owner is the owner of a client without a socket.
type owner struct{}

func (owner) Wake(bool) {}

// P8 in small: those who wait are read together, and each gets its own.
func TestWaitingClientsAreReadTogether(t *testing.T) {
	t.Parallel()
	w := newWorld()
	p, err := New(Config{ReadBatch: 40}, Deps{
		Subscriber: w.subscriber, States: w, Ledger: w, Users: w, Metrics: prometheus.NewRegistry(), Log: new(logBook).logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	p.refresh(t.Context(), true)
	var clients []*hub.Client
	for user := int64(1); user <= 40; user++ {
		w.results = append(w.results, result(user, "tok"+strconv.FormatInt(user, 10), 1, sale.StatusPaid))
		c, err := p.hub.Register(user, testSale, owner{})
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
		p.reader.ask(&socket{client: c, activity: testSale}, false)
	}
	p.reader.late(time.Now().Add(p.cfg.SubscribeWait)) // no shard is subscribed
	go p.reader.answer(t.Context())
	for i, c := range clients {
		var got []string
		eventually(t, "synced", func() bool {
			data, _, err := c.Next()
			if err != nil {
				t.Fatal(err)
			}
			if data != nil {
				got = append(got, string(data))
			}
			return strings.Contains(string(data), `"synced"`)
		})
		if len(got) != 3 || !strings.Contains(got[0], fmt.Sprintf(`"tok%d"`, i+1)) {
			t.Errorf("user %d got %v", i+1, got)
		}
	}
	w.change(func() {
		if w.stateReads != 1 {
			t.Errorf("%d reads for %d clients, want 1", w.stateReads, len(clients))
		}
	})
}
