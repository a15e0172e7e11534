package push_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"seckill/internal/push"
	"seckill/internal/sale"
)

// The hash is public: load balancers use the same.
func TestShardOfIsXXHash64OfDecimalUserID(t *testing.T) {
	t.Parallel()
	for _, u := range []int64{1, 100123, 738529527931269425, 9223372036854775807} {
		for _, shards := range []int{1, 16, 64} {
			want := int(xxhash.Sum64String(fmt.Sprint(u)) % uint64(shards))
			if got := push.ShardOf(u, shards); got != want {
				t.Errorf("shard of %d of %d is %d, want %d", u, shards, got, want)
			}
		}
	}
	// Fixed values, so that a change of the hash shows.
	for u, want := range map[int64]int{1: 4, 100123: 11, 9223372036854775807: 3} {
		if got := push.ShardOf(u, 16); got != want {
			t.Errorf("shard of %d is %d, want %d", u, got, want)
		}
	}
	counts := make([]int, 16)
	for u := range int64(16000) {
		counts[push.ShardOf(u+1, 16)]++
	}
	for shard, n := range counts {
		if n < 800 || n > 1200 {
			t.Errorf("shard %d gets %d of 16000 users", shard, n)
		}
	}
}

func full() sale.Result {
	return sale.Result{
		RequestToken: "a.b-c_d", ActivityID: "ACT1", CommodityID: "SP1", Quantity: 2, Status: sale.StatusPendingPayment,
		Reason: sale.ReasonUser, OrderNo: "738529527931269425" + "03", PayBefore: time.UnixMilli(1717200000123).UTC(), Version: 3,
		PollAfter: 1900 * time.Millisecond,
	}
}

// Frames as in the API contract: every name, epoch milliseconds, ids as strings, absent values left out.
func TestFrames(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1717200000500).UTC()
	small := sale.Result{RequestToken: "t", ActivityID: "A", CommodityID: "C", Quantity: 1, Status: sale.StatusProcessing}
	for name, test := range map[string]struct{ got, want string }{
		"result": {string(push.EncodeResult(full())), `{"type":"result","requestToken":"a.b-c_d","activityId":"ACT1",` +
			`"commodityId":"SP1","quantity":2,"status":"pending_payment","reason":"user","orderNo":"73852952793126942503",` +
			`"payBefore":1717200000123,"version":3,"pollAfterMs":1900}`},
		"smallest result": {string(push.ResultJSON(small)), `{"requestToken":"t","activityId":"A","commodityId":"C","quantity":1,` +
			`"status":"processing","version":0}`},
		"live": {string(push.EncodeLive(sale.Live{ActivityID: "A", State: sale.StateOpen, At: now, Epoch: 3, Seq: 9,
			Items: []sale.Remaining{{CommodityID: "C", Units: 7}, {CommodityID: "D"}}})),
			`{"type":"activity","activityId":"A","state":"open","items":[{"commodityId":"C","remaining":7},` +
				`{"commodityId":"D","remaining":0}],"serverTime":1717200000500}`},
		"live without stock": {string(push.EncodeLive(sale.Live{ActivityID: "A", State: sale.StateNotReady, At: now})),
			`{"type":"activity","activityId":"A","state":"not_ready","items":[],"serverTime":1717200000500}`},
		"synced":   {string(push.EncodeSynced(now)), `{"type":"synced","serverTime":1717200000500}`},
		"waitlist": {string(push.EncodeWaitlist("A", 3)), `{"type":"waitlist","activityId":"A","position":3}`},
	} {
		if test.got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", name, test.got, test.want)
		}
	}
}

// FS-083: whatever bytes come in, a frame is valid UTF-8 and valid JSON.
func FuzzFramesAreValidUTF8(f *testing.F) {
	for _, s := range []string{"x", "\xff", "caf\xc3", "\xe4\xb8", "\u2028", "\"\\\x00", "</script>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := full()
		r.CommodityID, r.Reason, r.OrderNo = s, sale.Reason(s), s
		for _, frame := range [][]byte{
			push.EncodeResult(r), push.ResultJSON(r), push.EncodeWaitlist(s, 1),
			push.EncodeLive(sale.Live{ActivityID: s, State: sale.State(s), Items: []sale.Remaining{{CommodityID: s}}}),
		} {
			if !utf8.Valid(frame) || !json.Valid(frame) {
				t.Fatalf("%q", frame)
			}
		}
	})
}

// What is published is what the handlers get, digit by digit (FS-023).
func TestMessageRoundTrip(t *testing.T) {
	t.Parallel()
	got := make(chan []sale.UserResult, 8)
	lives := make(chan sale.Live, 8)
	rdb := miniClient(t)
	s := start(t, rdb, push.Options{
		OnResults: func(_ int, rs []sale.UserResult) { got <- rs }, OnLive: func(l sale.Live) { lives <- l },
	})
	const user = 738529527931269425
	s.subscribe(push.ShardOf(user, 16))
	p := push.NewPublisher(rdb, 16)
	want := []sale.UserResult{{UserID: user, Result: full()}, {UserID: user, Result: sale.Result{
		RequestToken: "t2", ActivityID: "A", CommodityID: "C", Quantity: 1, Status: sale.StatusSoldOut, Version: 1}}}
	must(t, p.Results(t.Context(), want))
	if rs := receive(t, got); !reflect.DeepEqual(rs, want) {
		t.Fatalf("got %+v\nwant %+v", rs, want)
	}

	must(t, s.SubscribeLive(t.Context(), "A"))
	s.await("live:A")
	l := sale.Live{ActivityID: "A", State: sale.StateOpen, Epoch: 3, Seq: 1 << 50, StartsAt: time.UnixMilli(1).UTC(),
		EndsAt: time.UnixMilli(2).UTC(), Items: []sale.Remaining{{CommodityID: "C", Units: 1_000_000_000}}, At: time.UnixMilli(3).UTC()}
	must(t, p.Live(t.Context(), l))
	if m := receive(t, lives); !reflect.DeepEqual(m, l) {
		t.Fatalf("got %+v\nwant %+v", m, l)
	}
}

// A message of another make is reported and skipped; the next one arrives.
func TestUnreadableMessageIsSkipped(t *testing.T) {
	t.Parallel()
	got := make(chan []sale.UserResult, 8)
	errs := make(chan error, 8)
	rdb := miniClient(t)
	s := start(t, rdb, push.Options{
		OnResults: func(_ int, rs []sale.UserResult) { got <- rs }, OnError: func(err error) { errs <- err },
	})
	s.subscribe(0)
	for _, payload := range []string{"", "nonsense", `{"results":7}`} {
		must(t, rdb.Publish(t.Context(), "seckill:push:0", payload).Err())
		if err := receive(t, errs); !strings.Contains(err.Error(), "push message") {
			t.Fatal(err)
		}
	}
	ok := `{"userId":"7","requestToken":"t","activityId":"A","commodityId":"C","quantity":1,"status":"paid","version":2}`
	odd := `{"userId":"-7","requestToken":"t","status":"paid"},{"userId":"7","requestToken":"t","status":"odd"},{}`
	must(t, rdb.Publish(t.Context(), "seckill:push:0", `{"results":[`+odd+`,`+ok+`]}`).Err())
	if rs := receive(t, got); len(rs) != 1 || rs[0].UserID != 7 || rs[0].Version != 2 {
		t.Fatalf("%+v", rs)
	}
}

// A large batch is cut into bounded messages, and the results of a user keep their order.
func TestLargeBatchKeepsOrder(t *testing.T) {
	t.Parallel()
	got := make(chan []sale.UserResult, 64)
	rdb := miniClient(t)
	s := start(t, rdb, push.Options{OnResults: func(_ int, rs []sale.UserResult) { got <- rs }})
	s.subscribe(0)
	var rs []sale.UserResult
	for i := range 200 {
		rs = append(rs, sale.UserResult{UserID: 7, Result: sale.Result{RequestToken: "t", Status: sale.StatusPaid, Version: int64(i)}})
	}
	must(t, push.NewPublisher(rdb, 1).Results(t.Context(), rs))
	next := int64(0)
	for next < 200 {
		part := receive(t, got)
		if len(part) > 64 {
			t.Fatalf("%d results in a message", len(part))
		}
		for _, r := range part {
			if r.Version != next {
				t.Fatalf("version %d, want %d", r.Version, next)
			}
			next++
		}
	}
}
