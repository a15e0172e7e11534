package stocktest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"seckill/internal/sale"
)

func testConcurrency(t *testing.T, b Backend) {
	b.each(t, "Concurrency", []namedTest{
		{name: "LastUnitSellsOnce_FS001", run: lastUnitSellsOnce},
		{name: "OneUserManyTokens_FS003_FS018", run: oneUserManyTokens},
		{name: "ThousandBuyers_FS002", run: thousandBuyers},
		{name: "NothingIsLostOrMade_S6_S24", run: nothingIsLost},
	})
}

// gateways are several stores on one Redis, as several processes have.
func (e *env) gateways(n int) []Store {
	out := make([]Store, n)
	for i := range out {
		out[i] = e.b.Open(e.o)
	}
	return out
}

// watchStock samples the stock until stop is called, which tells the lowest value that was seen.
func (e *env) watchStock(commodity string) (stop func() int64) {
	end, lowest := make(chan struct{}), make(chan int64)
	go func() {
		low := int64(1 << 60)
		for {
			if v, err := e.keys.Text(e.ctx, e.key("stock:"+commodity)); err == nil {
				if n, err := strconv.ParseInt(v, 10, 64); err == nil {
					low = min(low, n)
				}
			}
			select {
			case <-end:
				lowest <- low
				return
			default:
			}
		}
	}()
	return func() int64 { close(end); return <-lowest }
}

func lastUnitSellsOnce(t *testing.T, b Backend) {
	e := newEnv(t, b, func(e *env) { e.a.Items[0].Total = 1 })
	gateways := e.gateways(2)
	stop := e.watchStock("SP1")
	var accepted, soldOut atomic.Int64
	var wg sync.WaitGroup
	for i := range int64(200) {
		wg.Go(func() {
			r, err := gateways[i%2].Reserve(e.ctx, e.a.ID, e.now, []sale.ReserveRequest{{
				Token: fmt.Sprint("t", i), UserID: i + 1, CommodityID: "SP1", Quantity: 1}})
			switch {
			case err != nil:
				t.Error(err)
			case r[0].Outcome == sale.ReserveAccepted:
				accepted.Add(1)
			case r[0].Outcome == sale.ReserveSoldOut:
				soldOut.Add(1)
			}
		})
	}
	wg.Wait()
	if low := stop(); low < 0 {
		t.Fatalf("stock was %d", low)
	}
	if accepted.Load() != 1 || soldOut.Load() != 199 {
		t.Fatalf("%d accepted, %d sold out", accepted.Load(), soldOut.Load())
	}
	e.stock("SP1", 0)
	e.outbox(1)
}

func oneUserManyTokens(t *testing.T, b Backend) {
	e := newEnv(t, b)
	gateways := e.gateways(2)
	u := e.user()
	var mu sync.Mutex
	outcomes := map[sale.ReserveOutcome]int{}
	firsts := map[string]bool{}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			r, err := gateways[i%2].Reserve(e.ctx, e.a.ID, e.now, []sale.ReserveRequest{{
				Token: fmt.Sprint("t", i%20), UserID: u, CommodityID: "SP1", Quantity: 1}})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			outcomes[r[0].Outcome]++
			switch r[0].Outcome {
			case sale.ReserveAccepted, sale.ReserveRepeat:
				firsts[r[0].Reservation.Token] = true
			case sale.ReserveParticipated:
				firsts[r[0].FirstToken] = true
			}
		})
	}
	wg.Wait()
	if outcomes[sale.ReserveAccepted] != 1 || outcomes[sale.ReserveRepeat] != 1 || outcomes[sale.ReserveParticipated] != 38 || len(firsts) != 1 {
		t.Fatalf("%v, tokens %v", outcomes, firsts)
	}
	e.stock("SP1", 9)
}

func thousandBuyers(t *testing.T, b Backend) {
	e := newEnv(t, b)
	stop := e.watchStock("SP1")
	var wg sync.WaitGroup
	var accepted atomic.Int64
	kept := make(chan sale.Reservation, 1000)
	for w := range int64(10) {
		wg.Go(func() {
			for i := range int64(10) {
				reqs := make([]sale.ReserveRequest, 10)
				for j := range reqs {
					u := w*100 + i*10 + int64(j) + 1
					reqs[j] = sale.ReserveRequest{Token: fmt.Sprint("t", u), UserID: u, CommodityID: "SP1", Quantity: 1}
				}
				rs, err := e.s.Reserve(e.ctx, e.a.ID, e.now, reqs)
				if err != nil {
					t.Error(err)
					return
				}
				for _, r := range rs {
					if r.Outcome == sale.ReserveAccepted {
						accepted.Add(1)
						kept <- r.Reservation
					} else if r.Outcome != sale.ReserveSoldOut {
						t.Errorf("outcome %q", r.Outcome)
					}
				}
			}
		})
	}
	wg.Wait()
	if low := stop(); accepted.Load() != 10 || low < 0 {
		t.Fatalf("%d accepted, lowest stock %d", accepted.Load(), low)
	}
	e.stock("SP1", 0)
	d := order(<-kept)
	e.settle(d, sale.SettleDone)
	e.giveBack(d, sale.StatusClosed, 2, sale.SettleDone)
	e.outcome(e.reserve(5000, "new", "SP1", 1), sale.ReserveAccepted)
	e.stock("SP1", 0)
}

// Whatever happens side by side, in whatever order and how often: stock + occupied + committed = total, and nobody
// holds more than one reservation.
func nothingIsLost(t *testing.T, b Backend) {
	const total, users, workers, steps = 40, 60, 6, 150
	e := newEnv(t, b, func(e *env) { e.a.Items[0].Total = total })
	stop := e.watchStock("SP1")
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(7, uint64(w))) // a seed, so that a failure comes again
			g := e.b.Open(e.o)
			now := e.now
			for range steps {
				now = now.Add(time.Duration(rnd.IntN(100)) * time.Millisecond)
				u := int64(rnd.IntN(users) + 1)
				r := sale.Reservation{Token: fmt.Sprintf("u%d-%d", u, rnd.IntN(2)), UserID: u, ActivityID: e.a.ID,
					CommodityID: "SP1", Price: e.a.Items[0].Price, Quantity: 1 + int(u%2), Epoch: 1, At: now}
				if err := randomStep(e, g, rnd, now, r); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if low := stop(); low < 0 {
		t.Fatalf("stock was %d", low)
	}
	held, holders := int64(0), map[string]string{}
	for u := range int64(users) {
		for k := range 2 {
			token := fmt.Sprintf("u%d-%d", u+1, k)
			h := e.hash(token)
			if h["state"] != "occupied" && h["state"] != "committed" {
				continue
			}
			held += int64(h["quantity"][0] - '0')
			if first, twice := holders[h["userId"]]; twice {
				t.Errorf("user %s holds %s and %s", h["userId"], first, token)
			}
			holders[h["userId"]] = token
		}
	}
	if left := e.units("SP1"); left+held != total {
		t.Fatalf("%d left + %d held, of %d", left, held, total)
	}
}

// randomStep does one thing to one token. Only tokens that Redis knows are settled: one that it does not know is
// written back without stock, which is right, and another test's matter.
func randomStep(e *env, g Store, rnd *rand.Rand, now time.Time, r sale.Reservation) error {
	req := sale.ReserveRequest{Token: r.Token, UserID: r.UserID, CommodityID: "SP1", Quantity: r.Quantity}
	action := rnd.IntN(10)
	if action < 5 {
		_, err := g.Reserve(e.ctx, e.a.ID, now, []sale.ReserveRequest{req, req})
		return err
	}
	if _, known, err := g.Result(e.ctx, e.a.ID, r.Token); err != nil || !known {
		return err
	}
	d := order(r)
	if r.Token[len(r.Token)-1] == '1' { // the same decision each time, as from the database
		d = refusal(r, sale.ReasonInvalid)
	}
	if action < 8 {
		_, err := g.Settle(e.ctx, e.a.ID, []sale.Decision{d, d})
		return err
	}
	ret := sale.Return{Token: r.Token, UserID: r.UserID, ActivityID: e.a.ID, CommodityID: "SP1", Quantity: r.Quantity, Status: sale.StatusClosed, Version: 2}
	_, _, err := g.Return(e.ctx, e.a.ID, []sale.Return{ret, ret})
	return err
}
