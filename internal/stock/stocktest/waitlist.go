package stocktest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"seckill/internal/sale"
)

func testWaitlist(t *testing.T, b Backend) {
	b.each(t, "Waitlist", []namedTest{
		{name: "ReturnedUnitGoesToTheHead_S24_R12", run: returnedUnitGoesToHead},
		{name: "EachUnitIsPromotedOnce_R12", run: eachUnitOnce},
		{name: "WaiterWhoTakesPartIsSkipped_R12", run: participantIsSkipped},
		{name: "NobodyWaits_S24", run: nobodyWaits},
		{name: "JoinedAnewIsLast_R12", run: joinedAnewIsLast},
		{name: "LineIsFilledByItsRebuild_R12_R10", run: lineIsFilledByItsRebuild},
		{name: "PromotionKnowsTheSale_R5", run: promotionKnowsTheSale},
		{name: "NothingIsOfferedByARewoundRedis_R12_R15", run: rewoundRedisOffersNothing},
		{name: "UnsoldUnitsAreTakenBack_S39", run: unsoldTakenBack},
		{name: "ForgedSettleTouchesNothing_FS020", run: forgedSettleTouchesNothing},
	})
}

// closedOrder is an order of SP1 that was settled and then closed in the database.
func (e *env) closedOrder(quantity int) sale.Return {
	e.Helper()
	user := e.user()
	rep := e.reserve(user, fmt.Sprintf("tok%d.%s", user, e.a.ID), "SP1", quantity)
	if rep.Outcome != sale.ReserveAccepted {
		e.Fatalf("reserve: %+v", rep)
	}
	e.settle(order(rep.Reservation), sale.SettleDone)
	return sale.Return{
		Token: rep.Reservation.Token, UserID: user, ActivityID: e.a.ID, CommodityID: "SP1", Quantity: quantity,
		OrderNo: "12345", Status: sale.StatusClosed, Version: 2,
	}
}

// join puts n new users in the line of SP1.
func (e *env) join(n int) []int64 {
	e.Helper()
	var ws []sale.Waiter
	var users []int64
	for i := range n {
		u := e.user()
		users = append(users, u)
		ws = append(ws, sale.Waiter{UserID: u, JoinedAt: e.now.Add(time.Duration(i) * time.Millisecond)})
	}
	e.must(e.s.JoinWaitlist(e.ctx, e.a.ID, "SP1", ws))
	return users
}

// waiting are the users in the line of SP1.
func (e *env) waiting() (users []int64) {
	e.Helper()
	ws, err := e.s.Waiting(e.ctx, e.a.ID, "SP1", 100)
	e.must(err)
	for _, w := range ws {
		users = append(users, w.UserID)
	}
	return users
}

func (e *env) line(want ...int64) {
	e.Helper()
	got := e.waiting()
	if !slices.Equal(got, want) {
		e.Fatalf("line %v, want %v", got, want)
	}
}

// promotedToken is the token a returned unit gives to a user.
func promotedToken(r sale.Return) func(int64) string {
	return func(user int64) string { return fmt.Sprintf("p%d-%s", user, r.Token) }
}

func (e *env) promote(r sale.Return, want sale.Settlement) []sale.Reservation {
	e.Helper()
	p, err := e.s.Promote(e.ctx, r, e.now, e.waiting(), promotedToken(r))
	e.must(err)
	if epoch, _ := e.s.Position(e.a.ID); p.Found != want || p.Epoch != epoch {
		e.Fatalf("promote: %s of epoch %d, want %s of %d", p.Found, p.Epoch, want, epoch)
	}
	return p.Reservations
}

func returnedUnitGoesToHead(t *testing.T, b Backend) {
	e := newEnv(t, b)
	r := e.closedOrder(1)
	users := e.join(3)
	e.must(e.s.JoinWaitlist(e.ctx, e.a.ID, "SP1", []sale.Waiter{{UserID: users[0], JoinedAt: e.now}})) // keeps the place
	if _, err := e.s.Promote(e.ctx, r, e.now, users[1:], promotedToken(r)); !errors.Is(err, sale.ErrConflict) {
		t.Errorf("promoted from a line that is not this one: %v", err)
	}
	if n, at, err := e.s.WaitPosition(e.ctx, e.a.ID, "SP1", users[1]); err != nil || n != 2 || !at.Equal(e.now.Add(time.Millisecond)) {
		t.Errorf("position %d, %v", n, err)
	}
	rs := e.promote(r, sale.SettleDone)
	if len(rs) != 1 || rs[0].UserID != users[0] || rs[0].Quantity != 1 || rs[0].Token != promotedToken(r)(users[0]) || rs[0].Price.String() != "99" || rs[0].Epoch != 1 {
		t.Fatalf("promoted %+v", rs)
	}
	e.stock("SP1", 9) // the unit was never on sale
	e.outbox(1)
	e.field(r.Token, "state", "released")
	e.field(r.Token, "status", "closed")
	e.field(rs[0].Token, "state", "occupied")
	e.takesPart(users[0], rs[0].Token)
	e.line(users[1:]...)
	if n, _, err := e.s.WaitPosition(e.ctx, e.a.ID, "SP1", users[0]); err != nil || n != 0 {
		t.Errorf("a promoted user is still at %d, %v", n, err)
	}
	// The new reservation is decided like any other.
	e.settle(order(rs[0]), sale.SettleDone)
	e.must(e.s.LeaveWaitlist(e.ctx, e.a.ID, "SP1", users[1]))
	e.line(users[2])
	e.must(e.s.DropWaitlist(e.ctx, e.a.ID, "SP1"))
	e.line()
}

// The line of a Redis that went back may hold users who have left since.
func rewoundRedisOffersNothing(t *testing.T, b Backend) {
	for field, value := range map[string]string{"seq": "1", "epoch": "0"} {
		e := newEnv(t, b)
		r := e.closedOrder(1)
		users := e.join(1)
		e.must(e.keys.SetField(e.ctx, e.key("meta"), field, value))
		p, err := e.s.Promote(e.ctx, r, e.now, users, promotedToken(r))
		if err != nil || p.Found != sale.SettleNotYet || len(p.Reservations) != 0 || !e.s.Rewound(e.a.ID) {
			t.Errorf("lower %s: promote: %+v, %v; noticed %v", field, p, err, e.s.Rewound(e.a.ID))
		}
		e.field(r.Token, "state", "committed")
		e.line(users...)
	}
}

func eachUnitOnce(t *testing.T, b Backend) {
	e := newEnv(t, b)
	r := e.closedOrder(2)
	users := e.join(3)
	done := make(chan []sale.Reservation, 8)
	for range 8 {
		go func() {
			for {
				p, err := e.s.Promote(e.ctx, r, e.now, e.waiting(), promotedToken(r))
				if errors.Is(err, sale.ErrConflict) {
					continue // the line moved: again
				}
				if err != nil {
					t.Errorf("promote: %v", err)
				}
				done <- p.Reservations
				return
			}
		}()
	}
	total := 0
	for range 8 {
		total += len(<-done)
	}
	if total != 2 {
		t.Errorf("%d promoted for two units", total)
	}
	e.promote(r, sale.SettleAlready)
	if got, _, err := e.s.Return(e.ctx, e.a.ID, []sale.Return{r}); err != nil || got[0] != sale.SettleAlready {
		t.Errorf("return after promotion: %v, %v", got, err)
	}
	e.stock("SP1", 8)
	e.outbox(2)
	e.line(users[2])
}

func participantIsSkipped(t *testing.T, b Backend) {
	e := newEnv(t, b)
	r := e.closedOrder(2)
	users := e.join(2)
	if rep := e.reserve(users[0], "own."+e.a.ID, "SP1", 1); rep.Outcome != sale.ReserveAccepted {
		t.Fatalf("%+v", rep)
	}
	rs := e.promote(r, sale.SettleDone)
	if len(rs) != 1 || rs[0].UserID != users[1] {
		t.Fatalf("promoted %+v", rs)
	}
	e.takesPart(users[0], "own."+e.a.ID)
	e.line(users[0])  // skipped, not popped
	e.stock("SP1", 8) // 10 - 2 - 1, and one of the two units came back
}

func nobodyWaits(t *testing.T, b Backend) {
	e := newEnv(t, b)
	r := e.closedOrder(2)
	if rs := e.promote(r, sale.SettleDone); len(rs) != 0 {
		t.Errorf("promoted %+v", rs)
	}
	e.stock("SP1", 10)
	e.promote(r, sale.SettleAlready)
	e.stock("SP1", 10)
}

func joinedAnewIsLast(t *testing.T, b Backend) {
	e := newEnv(t, b)
	users := e.join(3)
	at := func(user int64, after time.Duration) []sale.Waiter {
		return []sale.Waiter{{UserID: user, JoinedAt: e.now.Add(after)}}
	}
	e.must(e.s.JoinWaitlist(e.ctx, e.a.ID, "SP1", at(users[0], time.Second)))
	e.line(users[1], users[2], users[0])
	e.must(e.s.JoinWaitlist(e.ctx, e.a.ID, "SP1", at(users[0], 0))) // of the first time, late
	e.line(users[1], users[2], users[0])
	e.must(e.s.DropWaiters(e.ctx, e.a.ID, "SP1", at(users[0], 0))) // left and has joined again
	e.line(users[1], users[2], users[0])
	e.must(e.s.DropWaiters(e.ctx, e.a.ID, "SP1", append(at(users[0], time.Second), at(users[2], 2*time.Millisecond)...)))
	e.line(users[1])
	e.must(e.s.DropWaiters(e.ctx, e.a.ID, "SP1", nil))
	e.line(users[1])
}

// The line is written by the rebuild that goes on, and by no other; users come and go meanwhile.
func lineIsFilledByItsRebuild(t *testing.T, b Backend) {
	e := newEnv(t, b)
	users := e.join(2)
	ws := []sale.Waiter{{UserID: users[0], JoinedAt: e.now}, {UserID: users[1], JoinedAt: e.now.Add(time.Millisecond)}}
	fill := func(epoch int64, want error) {
		t.Helper()
		if err := e.s.FillWaitlist(e.ctx, e.a.ID, "SP1", epoch, ws); !errors.Is(err, want) {
			t.Errorf("fill of epoch %d: %v, want %v", epoch, err, want)
		}
	}
	e.must(e.s.LeaveWaitlist(e.ctx, e.a.ID, "SP1", users[1]))
	fill(1, sale.ErrConflict) // open
	e.line(users[0])
	e.a.Epoch = 2
	e.must(e.s.BeginRebuild(e.ctx, e.a, 2))
	e.line()
	fill(1, sale.ErrConflict)
	e.line()
	late := e.user()
	e.must(e.s.JoinWaitlist(e.ctx, e.a.ID, "SP1", []sale.Waiter{{UserID: late, JoinedAt: e.now.Add(time.Second)}}))
	fill(2, nil)
	e.line(users[0], users[1], late)
	e.must(e.s.LeaveWaitlist(e.ctx, e.a.ID, "SP1", users[0]))
	e.must(e.s.DropWaiters(e.ctx, e.a.ID, "SP1", ws[1:]))
	e.line(late)
	e.must(e.s.FinishRebuild(e.ctx, &sale.Snapshot{Activity: e.a}, 2))
	fill(2, sale.ErrConflict)
	e.line(late)
	e.lose("meta")
	fill(2, sale.ErrNotReady)
}

func promotionKnowsTheSale(t *testing.T, b Backend) {
	e := newEnv(t, b)
	e.join(1)
	rep := e.accepted()
	undecided := sale.Return{Token: rep.Token, ActivityID: e.a.ID, CommodityID: "SP1", Quantity: 1, Status: sale.StatusClosed, Version: 2}
	e.promote(undecided, sale.SettleNotYet)
	unknown := undecided
	unknown.Token = "unknown." + e.a.ID
	e.promote(unknown, sale.SettleNotYet)
	r := e.closedOrder(1)
	e.lose("stock:SP1")
	e.promote(r, sale.SettleNotYet)
	if err := e.s.JoinWaitlist(e.ctx, "NOSUCHSALE", "SP1", []sale.Waiter{{UserID: 1, JoinedAt: e.now}}); !errors.Is(err, sale.ErrNotReady) {
		t.Errorf("join of an unknown sale: %v", err)
	}
}

// A message that names another user's token is refused by the database; carrying that over must not touch the
// reservation of its owner.
func forgedSettleTouchesNothing(t *testing.T, b Backend) {
	e := newEnv(t, b)
	r := e.accepted()
	forged := sale.Decision{Reservation: r, Reason: sale.ReasonInvalid, Status: sale.StatusFailed, Version: 1}
	forged.UserID = e.user()
	e.settle(forged, sale.SettleAlready)
	e.field(r.Token, "state", "occupied")
	e.outbox(1)
	e.stock("SP1", 9)
	e.takesPart(r.UserID, r.Token)
}

func unsoldTakenBack(t *testing.T, b Backend) {
	e := newEnv(t, b)
	e.must(e.s.TakeBack(e.ctx, e.a.ID, "SP1", 4))
	e.stock("SP1", 6)
	if err := e.s.TakeBack(e.ctx, e.a.ID, "SP1", 7); !errors.Is(err, sale.ErrConflict) {
		t.Errorf("more than is left: %v", err)
	}
	e.stock("SP1", 6)
	e.spoil("stock:SP2", "x")
	if err := e.s.TakeBack(e.ctx, e.a.ID, "SP2", 1); !errors.Is(err, sale.ErrNotReady) {
		t.Errorf("no usable stock: %v", err)
	}
}
