package ledger_test

import (
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/ledger"
	"seckill/internal/sale"
	"seckill/internal/testenv"
)

// FS-064, S23, S37: payments and the expiry job meet at the very millisecond of the deadline. Of each order exactly one of
// paid and closed holds, a unit is never both paid and on its way back on sale, and money that came too late is due back.
// The case's 1,000 rounds are run in the long run.
func TestPaymentAgainstExpiry(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		paymentAgainstExpiry(t, openSQLite(t, atExpiry), 160)
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		rounds := 200
		if testenv.Long() {
			rounds = 1000
		}
		paymentAgainstExpiry(t, openOwnDatabase(t, atExpiry), rounds)
	})
}

// expiryNow is the present of these tests: the deadlines of a sale's orders follow from it.
func expiryNow() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 89e6, time.UTC) }

func atExpiry(o *ledger.Options) { o.Now = expiryNow }

// openOwnDatabase makes a database for one test: the expiry job looks at every order there is.
func openOwnDatabase(t *testing.T, edit func(*ledger.Options)) *ledger.Ledger {
	t.Helper()
	root := testenv.MySQL(t)
	_ = database.dsn(t)
	name := "seckill_ledger_" + strings.ToLower(rand.Text()[:8])
	if err := database.exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = database.exec("DROP DATABASE " + name) })
	l := openDSN(t, withDatabase(root, name), edit)
	if err := l.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// till is what the rounds of one sale came to.
type till struct {
	paid, closed, refunds int64
	race                  map[sale.Status]int // how the rounds ended whose end was open
	job                   time.Duration       // how long the expiry job took that closed a batch
}

func paymentAgainstExpiry(t *testing.T, l *ledger.Ledger, rounds int) {
	const together = 20 // orders of one deadline
	s := newStall(t, l, int64(rounds))
	sum := till{race: map[sale.Status]int{}}
	for done := 0; done < rounds; done += together {
		batch := s.messages(min(together, rounds-done))
		for i := range batch {
			batch[i].At = expiryNow()
		}
		decisions, err := l.Commit(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		deadline := decisions[0].PayBefore
		switch done / together % 4 {
		case 0: // all pay 1 ms before, with the job running at that time
			s.expire(deadline.Add(-time.Millisecond), 0)
			s.payAll(&sum, decisions, deadline.Add(-time.Millisecond), sale.PaymentPaid)
			s.expire(deadline, 0)
		case 1: // all pay 1 ms after, when the job has been there
			start := time.Now()
			s.expire(deadline, len(decisions))
			sum.job = time.Since(start)
			s.payAll(&sum, decisions, deadline.Add(time.Millisecond), sale.PaymentRefundDue)
		default: // the job and the payments at once, some before the deadline and some after
			s.race(&sum, decisions, deadline)
		}
	}
	s.settleTill(&sum)
	if sum.race[sale.StatusPaid] == 0 || sum.race[sale.StatusClosed] == 0 {
		t.Errorf("races ended %v: one side always won, the test proves little", sum.race)
	}
	t.Logf("%d paid, %d closed, %d payments due back; races ended %v", sum.paid, sum.closed, sum.refunds, sum.race)
}

// expire runs the expiry job as if it were at, and expects it to close so many.
func (s *stall) expire(at time.Time, want int) {
	s.Helper()
	closed, err := s.l.CloseUnpaid(s.Context(), at, 1000)
	if err != nil || len(closed) != want {
		s.Fatalf("the expiry job at %v closed %d (%v), want %d", at, len(closed), err, want)
	}
}

func paymentOf(d sale.Decision, at time.Time) sale.Payment {
	return sale.Payment{ID: "p-" + rand.Text(), OrderNo: d.OrderNo, Amount: decimal.NewFromInt(5), PaidAt: at}
}

func (s *stall) payAll(sum *till, ds []sale.Decision, at time.Time, want sale.PaymentOutcome) {
	s.Helper()
	for _, d := range ds {
		outcome, _, _, err := s.l.RecordPayment(s.Context(), paymentOf(d, at))
		if err != nil || outcome != want {
			s.Fatalf("payment at %v: %s, %v; want %s", at, outcome, err, want)
		}
		s.ended(sum, d, outcome)
	}
}

// race lets the job, at 1 ms before to 1 ms after the deadline, run against a payment of each order.
func (s *stall) race(sum *till, ds []sale.Decision, deadline time.Time) {
	s.Helper()
	var wg sync.WaitGroup
	gate := make(chan struct{})
	outcomes := make([]sale.PaymentOutcome, len(ds))
	for i, d := range ds {
		off := time.Duration(mathrand.IntN(3)-1) * time.Millisecond
		late := time.Duration(mathrand.Int64N(int64(2*sum.job) + 1))
		wg.Go(func() {
			<-gate
			time.Sleep(late) // spread over the time that the job takes
			outcome, _, _, err := s.l.RecordPayment(s.Context(), paymentOf(d, deadline.Add(off)))
			if err != nil {
				s.Errorf("payment: %v", err)
			}
			outcomes[i] = outcome
		})
	}
	for _, off := range []time.Duration{-time.Millisecond, 0, time.Millisecond} {
		wg.Go(func() {
			<-gate
			closed, err := s.l.CloseUnpaid(s.Context(), deadline.Add(off), 1000)
			if err != nil && !errors.Is(err, sale.ErrTransient) {
				s.Errorf("expiry job: %v", err)
			}
			if off < 0 && len(closed) > 0 {
				s.Errorf("%d orders were closed a millisecond before their deadline", len(closed))
			}
		})
	}
	close(gate)
	wg.Wait()
	for i, d := range ds {
		sum.race[s.ended(sum, d, outcomes[i])]++
	}
}

// ended checks that the order and its one payment agree, and counts them.
func (s *stall) ended(sum *till, d sale.Decision, outcome sale.PaymentOutcome) sale.Status {
	s.Helper()
	o, err := s.l.OrderByNo(s.Context(), d.OrderNo)
	if err != nil {
		s.Fatal(err)
	}
	switch {
	case o.Version != 2:
		s.Errorf("order %s: version %d, want one change", d.OrderNo, o.Version)
	case o.Status == sale.StatusPaid && outcome == sale.PaymentPaid && o.ClosedAt.IsZero():
		sum.paid++
	case o.Status == sale.StatusClosed && outcome == sale.PaymentRefundDue && o.PaidAt.IsZero():
		sum.closed++
		sum.refunds++
	default:
		s.Errorf("order %s is %s (paid %v, closed %v), its payment %s", d.OrderNo, o.Status, o.PaidAt, o.ClosedAt, outcome)
	}
	return o.Status
}

// settleTill compares the sums with the stock, the returns and the refunds.
func (s *stall) settleTill(sum *till) {
	s.Helper()
	b, err := s.l.Balance(s.Context(), s.id)
	if err != nil {
		s.Fatal(err)
	}
	if b[0].Sold != sum.paid || b[0].Returning != sum.closed {
		s.Errorf("sold %d and returning %d units, %d orders paid and %d closed", b[0].Sold, b[0].Returning, sum.paid, sum.closed)
	}
	returns, err := s.l.PendingReturns(s.Context(), 1000)
	if err != nil || int64(len(returns)) != sum.closed {
		s.Errorf("%d returns due (%v), %d orders closed", len(returns), err, sum.closed)
	}
	for _, r := range returns {
		if r.Status != sale.StatusClosed {
			s.Errorf("the unit of %s comes back, which is %s", r.Token, r.Status)
		}
	}
	due, err := s.l.RefundsDue(s.Context(), 1000)
	if err != nil || int64(len(due)) != sum.refunds {
		s.Errorf("%d refunds listed (%v), want %d", len(due), err, sum.refunds)
	}
}
