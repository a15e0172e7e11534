package stocktest

import (
	"fmt"
	"testing"
	"time"

	"seckill/internal/sale"
)

// FS-015: one key of a wrong type in a batch must not leave the others half done.
func spoiltTokenKey(t *testing.T, b Backend) {
	e := newEnv(t, b)
	e.must(e.rdb.Set(e.ctx, e.key("token:bad"), "x", time.Minute).Err())
	u, v, w := e.user(), e.user(), e.user()
	r := e.batch(
		sale.ReserveRequest{Token: "ok1", UserID: u, CommodityID: "SP1", Quantity: 1},
		sale.ReserveRequest{Token: "bad", UserID: v, CommodityID: "SP1", Quantity: 1},
		sale.ReserveRequest{Token: "ok2", UserID: w, CommodityID: "SP1", Quantity: 1},
	)
	e.outcome(r[0], sale.ReserveAccepted)
	e.outcome(r[1], sale.ReserveNotReady)
	e.outcome(r[2], sale.ReserveAccepted)
	e.stock("SP1", 8)
	e.outbox(2)
	e.takesPart(v, "")
	for _, key := range []string{"occupied", "participants", "meta", "blocked", "eligible"} {
		s := newEnv(t, b)
		s.must(s.rdb.Del(s.ctx, s.key(key)).Err())
		s.must(s.rdb.Set(s.ctx, s.key(key), "x", time.Minute).Err())
		x := s.user()
		if _, err := s.s.Reserve(s.ctx, s.a.ID, s.now, []sale.ReserveRequest{{Token: "z", UserID: x, CommodityID: "SP1", Quantity: 1}}); err == nil {
			t.Errorf("%s of another type goes unnoticed", key)
		}
		s.stock("SP1", 10)
		if s.raw(fmt.Sprintf("user:%d", x)) != "" || len(s.hash("z")) > 0 {
			t.Errorf("%s of another type leaves a half-done reservation", key)
		}
	}
}
