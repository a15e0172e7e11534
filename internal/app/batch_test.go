package app_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/shopspring/decimal"

	"seckill/consumer"
	"seckill/internal/app"
	"seckill/internal/embedded"
	"seckill/internal/queue"
	"seckill/internal/sale"
)

// FS-041: fifty users buy together with some whose fields are near what a request may hold. Those are refused by what they
// are, before stock; the fifty, among them one whose every field is as long as it may be, are delivered and get their orders.
func TestOversizedFieldCostsOnlyItself(t *testing.T) {
	t.Parallel()
	s := theShop
	longest := strings.Repeat("C", 32)
	act := s.openSale(t, item(longest, 60))
	const buyers = 50
	tokens, bearers := make([]string, buyers), make([]string, buyers)
	for i := range buyers {
		bearers[i] = user(t, 1<<63-1-int64(9900+i)) // nineteen digits
		tokens[i] = s.token(t, bearers[i], act)
	}
	big := user(t, 9990)
	bigToken := s.token(t, big, act)
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for i := range buyers {
		wg.Go(func() {
			<-gate
			status, _, err := s.api.Buy(context.WithoutCancel(t.Context()), bearers[i], act, longest, tokens[i], 1)
			if err != nil || status != http.StatusAccepted {
				t.Errorf("buyer %d: %d %v", i, status, err)
			}
		})
	}
	for name, body := range map[string]string{
		"commodity of 8,000 bytes": fmt.Sprintf(`{"requestToken":%q,"commodityId":%q}`, bigToken, strings.Repeat("c", 8000)),
		"token of 8,000 bytes":     fmt.Sprintf(`{"requestToken":%q,"commodityId":%q}`, bigToken+strings.Repeat("x", 8000), longest),
		"commodity of 33 bytes":    fmt.Sprintf(`{"requestToken":%q,"commodityId":%q}`, bigToken, longest+"C"),
		"quantity of 300 digits":   fmt.Sprintf(`{"requestToken":%q,"commodityId":%q,"quantity":%s}`, bigToken, longest, strings.Repeat("9", 300)),
	} {
		wg.Go(func() {
			<-gate
			status, code, _ := send(t, "POST", "/v1/activities/"+act+"/orders", body,
				map[string]string{"Authorization": "Bearer " + big, "Content-Type": "application/json"})
			if status != http.StatusBadRequest && status != http.StatusNotFound {
				t.Errorf("%s: %d %s", name, status, code)
			}
		})
	}
	close(gate)
	wg.Wait()
	for i := range buyers {
		if r, err := s.api.Result(t.Context(), bearers[i], tokens[i], 10*time.Second); err != nil || r.Status != "pending_payment" {
			t.Errorf("buyer %d: %+v, %v", i, r, err)
		}
	}
	s.wantRemaining(t, act, longest, 10)
}

// messages is a queue of its own with n messages of one user, so in one partition.
func messages(t *testing.T, n int) (queue.Options, *queue.Topics) {
	t.Helper()
	b, err := embedded.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	o := queue.Options{Brokers: b.KafkaBrokers, FetchBatch: 1, Log: slog.New(slog.DiscardHandler)}
	topics := queue.NewTopics(o)
	if err := topics.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	var rs []sale.Reservation
	for i := range n {
		rs = append(rs, sale.Reservation{
			Token: fmt.Sprintf("m%d", i+1), UserID: 1, ActivityID: "A", CommodityID: "C", Price: decimal.New(1999, -2),
			Quantity: 1, Epoch: 1, At: time.UnixMilli(1_700_000_000_000),
		})
	}
	p := queue.NewProducer(o)
	defer func() { _ = p.Close() }()
	if errs := p.Publish(t.Context(), rs); errs != nil {
		t.Fatal(errs)
	}
	return o, topics
}

// outage is a database that is away for a while when the second message comes. It stands for all that a consumer needs.
type outage struct {
	mu      sync.Mutex
	until   time.Time // zero: not begun
	lasts   time.Duration
	tries   int
	decided []string
}

func (o *outage) Commit(_ context.Context, batch []sale.Pending) ([]sale.Decision, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if batch[0].Token == "m2" {
		if o.until.IsZero() {
			o.until = time.Now().Add(o.lasts)
		}
		o.tries++
		if time.Now().Before(o.until) {
			return nil, fmt.Errorf("the database is away: %w", sale.ErrTransient)
		}
	}
	var out []sale.Decision
	for _, p := range batch {
		o.decided = append(o.decided, p.Token)
		out = append(out, sale.Decision{Reservation: p.Reservation, Ordered: true, OrderNo: p.OrderNo, Status: sale.StatusPendingPayment, Version: 1})
	}
	return out, nil
}

func (o *outage) Refuse(context.Context, sale.Pending) (sale.Decision, error) {
	return sale.Decision{}, errors.New("a message was given up")
}

func (o *outage) Settle(_ context.Context, _ string, ds []sale.Decision) ([]sale.Settlement, error) {
	return make([]sale.Settlement, len(ds)), nil
}
func (o *outage) Results(context.Context, []sale.UserResult) error { return nil }
func (o *outage) Park(context.Context, sale.Delivery, string) error {
	return errors.New("a message was parked")
}
func (o *outage) Next(userID int64) (string, error) { return sale.OrderNo(1, userID), nil }

func (o *outage) state() (decided []string, away bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.decided...), !o.until.IsZero() && time.Now().Before(o.until)
}

// FS-046: five messages of one partition; the database goes away at the second for two seconds (five in the case). It is
// tried again in place, no later one is decided before it, and the offset never passes it.
func TestDatabaseAwayHoldsTheOffset(t *testing.T) {
	t.Parallel()
	o, topics := messages(t, 5)
	db := &outage{lasts: 2 * time.Second}
	c := consumer.New(consumer.Config{}, consumer.Deps{
		Ledger: db, Stock: db, Announcer: db, DeadLetters: db, Numbers: db, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		queue.NewGroup(o).Run(ctx, c.Handle)
	}()
	defer func() {
		cancel()
		<-done
	}()
	sum := func() (n int64) {
		committed, err := topics.Committed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, offset := range committed {
			n += offset
		}
		return n
	}
	looks := 0
	for end := time.Now().Add(20 * time.Second); sum() < 5; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			decided, _ := db.state()
			t.Fatalf("decided %v, committed %d of 5", decided, sum())
		}
		before := sum()
		decided, away := db.state()
		if !away {
			continue
		}
		if looks++; before > 1 || len(decided) != 1 {
			t.Fatalf("while message 2 waits: committed %d, decided %v", before, decided)
		}
	}
	decided, _ := db.state()
	if fmt.Sprint(decided) != "[m1 m2 m3 m4 m5]" || db.tries < 3 || looks < 2 { // a look takes half a second on a busy machine
		t.Errorf("decided %v after %d tries of the second; looked %d times", decided, db.tries, looks)
	}
}

// FS-096, S15: a clock that differs from the database's, as after it was set back across a restart, would make order
// numbers that were made before: the consumer does not start. (The bound is set below any real difference here.)
func TestWrongClockDoesNotStart(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	cfg.StartWait, cfg.Consumer.MaxClockSkew = 20*time.Second, -time.Nanosecond
	a, err := app.New(cfg, app.AllRoles(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err = a.Start(t.Context()); err == nil {
		_ = a.Stop()
		t.Fatal("it started")
	}
	if !strings.Contains(err.Error(), "clock of this machine") {
		t.Errorf("error %v", err)
	}
}
