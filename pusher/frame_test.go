package pusher

import (
	"encoding/json"
	"errors"
	"testing"
	"time"
	"unicode/utf8"

	"seckill/internal/sale"
)

// FuzzClientFrame: whatever a client sends is either not JSON or has a type, and only the exact frame is a sync.
func FuzzClientFrame(f *testing.F) {
	for _, seed := range []string{
		`{"type":"sync"}`, `{"type":"sync","x":[1,{"type":"no"}]}`, `{"Type":"sync"}`, `{"type":null}`, `[]`, `"sync"`, ``, `{`,
		"{\"type\":\"\xff\"}", `{"type":"sync"} `, `{"type":"a","type":"sync"}`, `{"type":"sy\u006ec"}`, "\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		kind, err := parseFrame(data)
		if valid := json.Valid(data) && utf8.Valid(data); valid == errors.Is(err, errNotJSON) {
			t.Fatalf("%q: JSON %v, error %v", data, valid, err)
		}
		if kind == "" {
			return
		}
		var object map[string]any
		if err := json.Unmarshal(data, &object); err != nil || object["type"] != kind {
			t.Fatalf("%q: type %q, %v", data, kind, err)
		}
	})
}

// The frames are as the contract writes them.
func TestFrames(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1717200000123)
	res := sale.Result{
		RequestToken: "tok", ActivityID: "A", CommodityID: "C", Quantity: 1, Status: sale.StatusPendingPayment, OrderNo: "12301",
		PayBefore: time.UnixMilli(1717200900000), Version: 1,
	}
	live := sale.Live{ActivityID: "A", State: sale.StateOpen, Items: []sale.Remaining{{CommodityID: "C", Units: 3}, {CommodityID: "D", Units: -1}}}
	for _, tc := range []struct{ got, want string }{
		{
			string(resultFrame(&res)),
			`{"type":"result","requestToken":"tok","activityId":"A","commodityId":"C","quantity":1,"status":"pending_payment",` +
				`"orderNo":"12301","payBefore":1717200900000,"version":1}`,
		},
		{
			string(liveFrame(&live, now)),
			`{"type":"activity","activityId":"A","state":"open","items":[{"commodityId":"C","remaining":3},{"commodityId":"D","remaining":0}],` +
				`"serverTime":1717200000123}`,
		},
		{
			string(liveFrame(&sale.Live{ActivityID: "A", State: sale.StateNotReady}, now)),
			`{"type":"activity","activityId":"A","state":"not_ready","items":[],"serverTime":1717200000123}`,
		},
		{string(syncedFrame(now)), `{"type":"synced","serverTime":1717200000123}`},
	} {
		if tc.got != tc.want {
			t.Errorf("frame\n%s\nwant\n%s", tc.got, tc.want)
		}
	}
}
