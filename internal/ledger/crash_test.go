package ledger_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"seckill/internal/ledger"
	"seckill/internal/sale"
	"seckill/internal/testenv"
)

// S20, FS-055: the server is killed and frozen, again and again, under two consumers that read the same messages,
// as after a rebalance. At the end every message has exactly one order and the stock agrees. Long run only.
func TestServerKilledAndFrozen(t *testing.T) {
	if !testenv.Long() {
		t.Skip("long run only: " + testenv.EnvLong + "=1")
	}
	server := testenv.OwnMariaDB(t)
	root := "root@tcp(" + server.Addr + ")/"
	execute(t, rawDB(t, root), "CREATE DATABASE shop")
	l := openDSN(t, root+"shop", func(o *ledger.Options) { o.TxTimeout, o.LockWait = 2*time.Second, time.Second })
	if err := l.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	const size, rounds = 50, 60
	s := newStall(t, l, size*rounds)
	var batches [][]sale.Pending
	for range rounds {
		batches = append(batches, s.messages(size))
	}
	stop := make(chan struct{})
	var nuisance, workers sync.WaitGroup
	nuisance.Go(func() { hurt(t, server, stop) })
	failures := make([]int, 2)
	numbers := make([]map[string]string, 2)
	for w := range 2 {
		numbers[w] = map[string]string{}
		workers.Go(func() {
			for _, batch := range batches {
				batch = s.redeliver(batch)
				out, err := l.Commit(t.Context(), batch)
				for errors.Is(err, sale.ErrTransient) {
					failures[w]++
					time.Sleep(20 * time.Millisecond)
					out, err = l.Commit(t.Context(), batch)
				}
				if err != nil {
					t.Error(err)
					return
				}
				for _, d := range out {
					if !d.Ordered {
						t.Errorf("refused: %+v", d)
					}
					numbers[w][d.Token] = d.OrderNo
				}
				time.Sleep(50 * time.Millisecond) // spread over several kills
			}
		})
	}
	workers.Wait()
	close(stop)
	nuisance.Wait()
	for token, no := range numbers[0] {
		if numbers[1][token] != no {
			t.Fatalf("token %s has orders %s and %s", token, no, numbers[1][token])
		}
	}
	s.check(size * rounds)
	t.Logf("transient failures of the workers: %v", failures)
	if failures[0]+failures[1] == 0 {
		t.Error("nothing was hurt: the test proves nothing")
	}
}

// hurt kills and freezes a server in turn until stop is closed.
func hurt(t *testing.T, server *testenv.Server, stop <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		case <-time.After(300 * time.Millisecond):
		}
		var err error
		if i%2 == 0 {
			err = errors.Join(server.Kill(), server.Restart(t.Context()))
		} else {
			err = server.Pause()
			time.Sleep(2500 * time.Millisecond) // longer than TxTimeout
			err = errors.Join(err, server.Resume())
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}
