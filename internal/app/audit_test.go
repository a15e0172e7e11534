package app_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

type auditReport struct {
	OK    bool
	Items []struct {
		CommodityID                                          string
		Total, RedisStock, Occupied, Returning, Sold, Orders int64
	}
	Differences []struct {
		Kind, ID, Detail string
		Repaired         bool
	}
}

func (s *shop) audit(t *testing.T, act, verb string) auditReport {
	t.Helper()
	var rep auditReport
	if _, err := s.api.JSON(t.Context(), http.MethodPost, "/admin/v1/activities/"+act+"/"+verb, s.admin, nil, &rep); err != nil {
		t.Fatalf("%s: %v", verb, err)
	}
	return rep
}

func (r auditReport) kinds() (out []string) {
	for _, d := range r.Differences {
		out = append(out, fmt.Sprintf("%s %s %v", d.Kind, d.ID, d.Repaired))
	}
	slices.Sort(out)
	return out
}

// redis is a client of the shop's Redis.
func (s *shop) redis(t *testing.T) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: s.app.Config().Redis.Addrs[0]})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// S25, FS-100, R13: what was corrupted by hand is named by id and mended once; a second look finds nothing.
func TestAudit(t *testing.T) {
	t.Parallel()
	s := theShop
	act := s.openSale(t, item("C1", 10))
	a, b := user(t, 9601), user(t, 9602)
	tokenA, _ := s.buy(t, a, act, "C1")
	tokenB, r := s.buy(t, b, act, "C1")
	if _, err := s.api.ChangeOrder(t.Context(), b, r.OrderNo, "cancel"); err != nil {
		t.Fatal(err)
	}
	var rep auditReport
	for range 100 { // until the cancelled unit is back
		if rep = s.audit(t, act, "audit"); rep.Items[0].RedisStock == 9 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if !rep.OK || rep.Items[0].RedisStock != 9 || rep.Items[0].Sold != 1 || rep.Items[0].Orders != 1 || rep.Items[0].Total != 10 {
		t.Fatalf("a clean sale: %+v", rep)
	}
	rdb := s.redis(t)
	ctx := context.Background()
	key := "seckill:{" + act + "}:"
	for _, err := range []error{
		rdb.Incr(ctx, key+"stock:C1").Err(),
		rdb.Del(ctx, key+"user:9601").Err(),
		rdb.Set(ctx, key+"user:9603", "nothing.behind."+act, 0).Err(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"mark_without_order 9603 false", "order_without_mark " + tokenA + " false", "stock C1 false"}
	if rep := s.audit(t, act, "audit"); rep.OK || !slices.Equal(rep.kinds(), want) {
		t.Errorf("audit found %v, want %v", rep.kinds(), want)
	}
	for i := range want {
		want[i] = want[i][:len(want[i])-len("false")] + "true"
	}
	if rep := s.audit(t, act, "reconcile"); !slices.Equal(rep.kinds(), want) {
		t.Errorf("reconcile mended %v, want %v", rep.kinds(), want)
	}
	if rep := s.audit(t, act, "reconcile"); !rep.OK || rep.Items[0].RedisStock != 9 {
		t.Errorf("after the repair: %+v", rep)
	}
	if mark, err := rdb.Get(ctx, key+"user:9601").Result(); err != nil || mark != tokenA {
		t.Errorf("mark %q, %v", mark, err)
	}
	if mark, err := rdb.Get(ctx, key+"user:9602").Result(); err != nil || mark != tokenB {
		t.Errorf("R18: the mark of a cancelled order is %q, %v; it stays", mark, err)
	}
}

// S39: stock added during a sale sells, unsold stock is taken back, never what is sold; both stores agree after each.
func TestChangeStock(t *testing.T) {
	t.Parallel()
	s := theShop
	act := s.openSale(t, item("C1", 1))
	s.buy(t, user(t, 9801), act, "C1")
	change := func(delta int64) (total int64, err error) {
		var a struct{ Items []struct{ Total int64 } }
		_, err = s.api.JSON(t.Context(), http.MethodPost, "/admin/v1/activities/"+act+"/stock", s.admin, map[string]any{"commodityId": "C1", "delta": delta}, &a)
		if err == nil {
			total = a.Items[0].Total
		}
		return total, err
	}
	if total, err := change(3); err != nil || total != 4 {
		t.Fatalf("add 3: %d, %v", total, err)
	}
	s.wantRemaining(t, act, "C1", 3)
	if _, r := s.buy(t, user(t, 9802), act, "C1"); r.Status != "pending_payment" {
		t.Errorf("an added unit: %+v", r)
	}
	if total, err := change(-2); err != nil || total != 2 {
		t.Fatalf("take 2 back: %d, %v", total, err)
	}
	_, err := change(-1)
	wantProblem(t, "take back what is sold", err, 409, "wrong_status")
	_, err = change(0)
	wantProblem(t, "nothing", err, 400, "invalid_request")
	if rep := s.audit(t, act, "audit"); !rep.OK || rep.Items[0].Total != 2 || rep.Items[0].RedisStock != 0 || rep.Items[0].Sold != 2 {
		t.Errorf("audit %+v", rep)
	}
}
