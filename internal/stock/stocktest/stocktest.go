// Package stocktest is the conformance suite of package stock: every outcome of every script, and what must hold when
// many act at once, run against each kind of Redis the product supports.
//
// It reads and spoils keys by the names the design gives them, not through the builders of package stock, so it also
// checks that these public names are kept. It never flushes a server and leaves no key behind: each test works on a
// sale of its own.
//
// # Stand-in and real server
//
// miniredis does not let time pass for lifetimes: tests move it by Backend.FastForward. It knows no memory limit, no
// replication and no cluster. What depends on these runs on real servers only (FS-098).
package stocktest

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/shopspring/decimal"

	"seckill/internal/sale"
	"seckill/internal/stock"
)

// Backend is one kind of Redis to run the suite against.
type Backend struct {
	Name   string
	Client redis.UniversalClient // nil where a stand-in is no server; see RunCore
	// Keys looks at what is stored. Default: the client's keys.
	Keys Keys
	// Open makes a store, as every process has one. Default: on the client.
	Open func(o stock.Options) Store
	// OpenSlow makes one that does something after its first look at the names of keys. Default: on a client of its own.
	OpenSlow func(t *testing.T, o stock.Options, do func()) Store
	// Private makes a backend for one test that moves time; nil on a real server, where time passes by itself.
	Private func(t *testing.T) Backend
	// FastForward lets time pass for lifetimes, on a private backend only: it ends the keys of all tests there.
	FastForward func(d time.Duration)
	// NotModelled is for RunCore.
	NotModelled map[string]string
	met         *sync.Map // names of NotModelled that are tests
}

// Run runs the whole suite.
func Run(t *testing.T, b Backend) {
	if b.Keys != nil {
		panic("BUG: a stand-in that is no server runs the core")
	}
	run(t, b.complete())
}

// RunCore runs the suite on a stand-in that is no server and models a part of one. NotModelled of the backend names each
// test that is left out, as "Group/name", with what is missing; the test is skipped and says so. A name that is no test
// fails.
func RunCore(t *testing.T, b Backend) {
	t.Cleanup(func() {
		for name := range b.NotModelled {
			if _, ok := b.met.Load(name); !ok && !strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
				t.Errorf("%q is to be left out and is no test", name)
			}
		}
	})
	b.met = &sync.Map{}
	run(t, b)
}

// complete fills in what a server's client gives.
func (b Backend) complete() Backend {
	b.Keys = onRedis{b.Client}
	b.Open = func(o stock.Options) Store { return stock.New(b.Client, o) }
	b.OpenSlow = func(t *testing.T, o stock.Options, do func()) Store {
		return stock.New(hooked(t, b, &onScan{do: do}), o)
	}
	return b
}

// each runs the tests of a group side by side, but for those about what is not modelled.
func (b Backend) each(t *testing.T, group string, tests []namedTest) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if why, ok := b.NotModelled[group+"/"+test.name]; ok {
				b.met.Store(group+"/"+test.name, true)
				t.Skip("not modelled: " + why)
			}
			if !test.alone {
				t.Parallel()
			}
			test.run(t, b)
		})
	}
}

type namedTest struct {
	name  string
	run   func(t *testing.T, b Backend)
	alone bool // not beside others
}

func run(t *testing.T, b Backend) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, b Backend)
	}{
		{"Reserve", testReserve},
		{"Limits", testLimits},
		{"Settle", testSettle},
		{"Rebuild", testRebuild},
		{"Reading", testReading},
		{"Concurrency", testConcurrency},
		{"Lifetime", testLifetime},
		{"Waitlist", testWaitlist},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, b)
		})
	}
}

// env is one sale on one Redis, with a store to act on it.
type env struct {
	*testing.T
	ctx   context.Context
	b     Backend
	rdb   redis.UniversalClient // for tests that run on a server only
	keys  Keys
	s     Store
	o     stock.Options
	a     sale.Activity
	now   time.Time // moves only when the test says so
	users int64
}

// newEnv warms up a sale that began an hour ago: SP1, 10 units at 99.00, at most 2 for one; SP2, 5 units.
func newEnv(t *testing.T, b Backend, change ...func(e *env)) *env {
	t.Helper()
	id := "T" + strconv.FormatUint(rand.Uint64(), 36) // differs between tests that share a server
	now := time.Now().UTC().Truncate(time.Second)
	e := &env{
		T: t, ctx: t.Context(), b: b, rdb: b.Client, keys: b.Keys, now: now, users: 100_000,
		o: stock.Options{UserPerSecond: 100},
		a: sale.Activity{
			ID: id, Title: "Test", StartsAt: now.Add(-time.Hour), EndsAt: now.Add(time.Hour),
			PayWithin: 15 * time.Minute, CloseGrace: 5 * time.Minute, WaitlistUntil: now.Add(90 * time.Minute),
			State: sale.StateScheduled, Epoch: 1,
			Items: []sale.Item{
				{CommodityID: "SP1", Title: "One", Price: decimal.RequireFromString("99.00"), Total: 10, MaxPerUser: 2},
				{CommodityID: "SP2", Title: "Two", Price: decimal.RequireFromString("0.10"), Total: 5, MaxPerUser: 1},
			},
		},
	}
	for _, f := range change {
		f(e)
	}
	e.s = b.Open(e.o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := e.s.Purge(ctx, id); err != nil {
			t.Errorf("purge: %v", err)
		}
	})
	e.warmUp(sale.Snapshot{})
	return e
}

// warmUp rebuilds the sale from a snapshot under the activity's epoch.
func (e *env) warmUp(snap sale.Snapshot) {
	e.Helper()
	snap.Activity = e.a
	e.must(e.s.BeginRebuild(e.ctx, e.a, e.a.Epoch))
	e.must(e.s.FinishRebuild(e.ctx, &snap, e.a.Epoch))
}

func (e *env) must(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func (e *env) key(rest string) string { return "seckill:{" + e.a.ID + "}:" + rest }

// user returns a user nobody else in this test is.
func (e *env) user() int64 {
	e.users++
	return e.users
}

// reserve sends one request.
func (e *env) reserve(user int64, token, commodity string, quantity int) sale.ReserveReply {
	e.Helper()
	return e.batch(sale.ReserveRequest{Token: token, UserID: user, CommodityID: commodity, Quantity: quantity})[0]
}

func (e *env) batch(reqs ...sale.ReserveRequest) []sale.ReserveReply {
	e.Helper()
	replies, err := e.s.Reserve(e.ctx, e.a.ID, e.now, reqs)
	e.must(err)
	if len(replies) != len(reqs) {
		e.Fatalf("%d replies to %d requests", len(replies), len(reqs))
	}
	return replies
}

// want reserves one unit of SP1 for a new user and checks the outcome.
func (e *env) want(outcome sale.ReserveOutcome) sale.ReserveReply {
	e.Helper()
	u := e.user()
	r := e.reserve(u, fmt.Sprintf("t%d", u), "SP1", 1)
	e.outcome(r, outcome)
	return r
}

func (e *env) outcome(r sale.ReserveReply, want sale.ReserveOutcome) {
	e.Helper()
	if r.Outcome != want {
		e.Fatalf("outcome %q, want %q (%+v)", r.Outcome, want, r)
	}
}

// raw returns the text of a string key, "" when it is missing.
func (e *env) raw(rest string) string {
	e.Helper()
	v, err := e.keys.Text(e.ctx, e.key(rest))
	e.must(err)
	return v
}

// spoil sets a string key.
func (e *env) spoil(rest, value string) {
	e.Helper()
	e.must(e.keys.SetText(e.ctx, e.key(rest), value))
}

// lose removes a key.
func (e *env) lose(rest string) {
	e.Helper()
	e.must(e.keys.Delete(e.ctx, e.key(rest)))
}

// there reports whether any of these keys is there.
func (e *env) there(rests ...string) bool {
	e.Helper()
	return slices.ContainsFunc(e.allKeys(), func(name string) bool {
		return slices.ContainsFunc(rests, func(rest string) bool { return name == e.key(rest) })
	})
}

// lasts checks that a key ends, within these bounds.
func (e *env) lasts(rest string, least, most time.Duration) {
	e.Helper()
	d, modelled, err := e.keys.Lasts(e.ctx, e.key(rest))
	e.must(err)
	if !modelled {
		e.Logf("not modelled: the lifetime of %s", rest)
		return
	}
	if d <= 0 || d < least || d > most {
		e.Errorf("%s ends in %v, want %v to %v", rest, d, least, most)
	}
}

// stock checks the units left of a commodity.
func (e *env) stock(commodity string, want int64) {
	e.Helper()
	if got := e.raw("stock:" + commodity); got != strconv.FormatInt(want, 10) {
		e.Fatalf("stock of %s is %q, want %d", commodity, got, want)
	}
}

// hash returns a token hash.
func (e *env) hash(token string) map[string]string {
	e.Helper()
	h, err := e.keys.Hash(e.ctx, e.key("token:"+token))
	e.must(err)
	return h
}

// field checks one field of a token hash.
func (e *env) field(token, name, want string) {
	e.Helper()
	if got := e.hash(token)[name]; got != want {
		e.Fatalf("%s of token %s is %q, want %q", name, token, got, want)
	}
}

// outbox checks how many tokens are occupied.
func (e *env) outbox(want int) {
	e.Helper()
	got, err := e.keys.Line(e.ctx, e.key("occupied"))
	e.must(err)
	if len(got) != want {
		e.Fatalf("%d occupied tokens in the outbox, want %d", len(got), want)
	}
}

// takesPart checks whether the user has a mark and is listed as a participant.
func (e *env) takesPart(user int64, token string) {
	e.Helper()
	got, ok, err := e.s.Mark(e.ctx, e.a.ID, user)
	e.must(err)
	members, err := e.keys.Set(e.ctx, e.key("participants"))
	e.must(err)
	member := slices.Contains(members, strconv.FormatInt(user, 10))
	if got != token || ok != (token != "") || member != ok {
		e.Fatalf("mark of user %d is %q, participant %v; want mark %q", user, got, member, token)
	}
}

// order is the decision "ordered" for a reservation.
func order(r sale.Reservation) sale.Decision {
	return sale.Decision{
		Reservation: r, Ordered: true, OrderNo: fmt.Sprintf("7385295279312694%02d", sale.TableOf(r.UserID)),
		Status: sale.StatusPendingPayment, Version: 1, PayBefore: r.At.Add(15 * time.Minute),
	}
}

// refusal is the decision "failed" for a reservation.
func refusal(r sale.Reservation, reason sale.Reason) sale.Decision {
	return sale.Decision{Reservation: r, Reason: reason, Status: sale.StatusFailed, Version: 1}
}

// settle settles one decision and checks the answer.
func (e *env) settle(d sale.Decision, want sale.Settlement) {
	e.Helper()
	got, err := e.s.Settle(e.ctx, e.a.ID, []sale.Decision{d})
	e.must(err)
	if got[0] != want {
		e.Fatalf("settle answered %q, want %q", got[0], want)
	}
}

// giveBack returns the unit of an order and checks the answer.
func (e *env) giveBack(d sale.Decision, status sale.Status, version int64, want sale.Settlement) {
	e.Helper()
	got, epoch, err := e.s.Return(e.ctx, e.a.ID, []sale.Return{{
		Token: d.Token, UserID: d.UserID, ActivityID: d.ActivityID, CommodityID: d.CommodityID, Quantity: d.Quantity,
		OrderNo: d.OrderNo, Status: status, Version: version,
	}})
	e.must(err)
	if got[0] != want {
		e.Fatalf("return answered %q, want %q", got[0], want)
	}
	if now, _ := e.s.Position(e.a.ID); epoch != now && !e.s.Rewound(e.a.ID) { // what is recorded of it is bound to this
		e.Fatalf("return answered of epoch %d, want %d", epoch, now)
	}
}

// sameReservation compares two reservations; decimals of equal value may differ inside.
func sameReservation(a, b sale.Reservation) bool {
	price := a.Price.Equal(b.Price)
	a.Price, b.Price = decimal.Zero, decimal.Zero
	return price && a == b
}

// units returns the units left of a commodity.
func (e *env) units(commodity string) int64 {
	e.Helper()
	n, err := strconv.ParseInt(e.raw("stock:"+commodity), 10, 64)
	e.must(err)
	return n
}
