package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"seckill/internal/testenv"
)

// Real kills: roles and servers die by SIGKILL at random moments of a sale, and come back. Whatever died: never
// oversold, the balance holds, each accepted request has exactly one outcome and its user learns it, nobody is told
// failed who has an order.
func TestKills(t *testing.T) {
	rounds := 1
	if testenv.Long() {
		rounds = 20
	}
	for round := range rounds {
		seed := uint64(time.Now().UnixNano()) + uint64(round)
		ok := t.Run(fmt.Sprintf("round %d", round+1), func(t *testing.T) { killRound(t, seed) })
		if !ok {
			return
		}
	}
}

// victims of a round, each with how it is killed and brought back.
func (s *stack) victims() map[string]func(ctx context.Context) error {
	server := func(srv *testenv.Server) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := srv.Kill(); err != nil {
				return err
			}
			return srv.Restart(ctx)
		}
	}
	v := map[string]func(context.Context) error{
		"redis": server(s.redis), "kafka": server(s.kafka.Nodes[0]), "mariadb": server(s.maria),
	}
	for name := range s.procs {
		v[name] = func(context.Context) error { s.relaunch(name); return nil }
	}
	return v
}

func killRound(t *testing.T, seed uint64) {
	const stock, users = 2000, 20_000
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	s := newStack(t, options{ownDatabase: true, env: []string{
		"SECKILL_LIMITS_SALE_PER_SECOND=1500", "SECKILL_PUSHER_MAX_SOCKETS_PER_ADDRESS=30000", "SECKILL_RECONCILER_RELAY_AFTER=2s",
	}})
	s.startAll()
	s.start("reconciler", "reconciler2")
	id := s.openSale(stock)
	ctx, cancel := context.WithCancel(t.Context())
	killed := make(chan map[string]int, 1)
	reports := s.crowd(4, crowdJob{
		Gateways: []string{s.procs["gateway1"].addr, s.procs["gateway2"].addr},
		Pushers:  []string{s.procs["pusher1"].addr, s.procs["pusher2"].addr},
		Activity: id, Users: users, InFlight: 100, Within: 3 * time.Minute, Faults: true,
	}, func() {
		go func() { killed <- s.killSome(ctx, rnd) }()
	})
	cancel()
	t.Logf("kills: %v", <-killed)
	s.checkAfterKills(id, stock, reports)
}

// killsARound bounds a round: after so many the servers are left alone, and the sale must come to its end.
const killsARound = 25

// killSome kills one victim after another, every one to three seconds, until ctx ends or there were enough.
func (s *stack) killSome(ctx context.Context, rnd *rand.Rand) map[string]int {
	count := map[string]int{}
	victims := s.victims()
	var names []string
	for name := range victims {
		names = append(names, name)
	}
	for range killsARound {
		select {
		case <-ctx.Done():
			return count
		case <-time.After(time.Duration(1000+rnd.IntN(2000)) * time.Millisecond):
		}
		name := names[rnd.IntN(len(names))]
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		if err := victims[name](back); err != nil {
			s.t.Errorf("kill %s: %v", name, err)
		}
		cancel()
		count[strings.TrimRight(name, "0123456789")]++
	}
	return count
}

// checkAfterKills waits until everything is decided and holds the invariants against the servers.
func (s *stack) checkAfterKills(id string, stock int64, reports []crowdReport) {
	t := s.t
	t.Helper()
	var sum crowdReport
	refused := map[int64]bool{}
	for _, r := range reports {
		sum.Accepted += r.Accepted
		sum.Told += r.Told
		sum.SoldOut += r.SoldOut
		sum.Retries += r.Retries
		sum.Polled += r.Polled
		for _, u := range r.Refused {
			refused[u] = true
		}
		for _, u := range r.Unknown {
			t.Error(u)
		}
	}
	t.Logf("accepted %d, told %d (%d by polling), refused after acceptance %d, sold out %d, retries %d",
		sum.Accepted, sum.Told, sum.Polled, len(refused), sum.SoldOut, sum.Retries)
	if sum.Told != sum.Accepted {
		t.Errorf("%d accepted, %d told", sum.Accepted, sum.Told)
	}
	eventually(t, 90*time.Second, "the sale is whole again", func() (bool, string) {
		units, err := s.rdb.Get(context.Background(), "seckill:{"+id+"}:stock:C1").Int64()
		if err != nil {
			return false, err.Error()
		}
		occupied, sold := s.occupied(id), s.sold(id)
		return occupied == 0 && units+sold == stock, fmt.Sprintf("redis %d + sold %d, occupied %d, total %d", units, sold, occupied, stock)
	})
	if sold, rows := s.sold(id), s.orders(id); sold > stock || rows != sold {
		t.Errorf("sold %d of %d, %d order rows", sold, stock, rows)
	}
	for n := range 16 {
		rows, err := s.db.Query(fmt.Sprintf("SELECT user_id FROM seckill_order_%02d WHERE activity_id = ?", n), id)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var user int64
			if err := rows.Scan(&user); err != nil {
				t.Fatal(err)
			}
			if refused[user] {
				t.Errorf("user %d has an order and was told failed", user)
			}
		}
		_ = rows.Close()
	}
	var rep struct {
		OK          bool
		Differences []struct{ Kind, ID, Detail string }
	}
	eventually(t, 30*time.Second, "the audit finds nothing", func() (bool, string) {
		_, err := s.api("gateway1").JSON(t.Context(), http.MethodPost, "/admin/v1/activities/"+id+"/audit", adminToken, nil, &rep)
		return err == nil && rep.OK, fmt.Sprintf("%v %.600s", err, fmt.Sprint(rep.Differences))
	})
}
