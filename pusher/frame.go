package pusher

import (
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	"seckill/internal/sale"
)

// errNotJSON is returned for an inbound frame that is no JSON in UTF-8.
var errNotJSON = errors.New("frame is not JSON")

// parseFrame reads the type of an inbound frame. JSON of any other form has the type "": it is ignored as an unknown
// type is, so that newer clients can talk to older pushers.
func parseFrame(data []byte) (string, error) {
	if !json.Valid(data) || !utf8.Valid(data) {
		return "", errNotJSON
	}
	var members map[string]json.RawMessage // not a struct, whose member names would match in any case
	var kind string
	if json.Unmarshal(data, &members) != nil || json.Unmarshal(members["type"], &kind) != nil {
		return "", nil //nolint:nilerr // JSON of another form is no error
	}
	return kind, nil
}

// typeSync is the one frame a client can send.
const typeSync = "sync"

// resultFrame is the frame that tells a result.
func resultFrame(r *sale.Result) []byte {
	return append(r.AppendFields(append(make([]byte, 0, 320), `{"type":"result",`...)), '}')
}

// liveFrame is the frame that tells the state of a sale.
func liveFrame(l *sale.Live, now time.Time) []byte {
	type item struct {
		CommodityID string `json:"commodityId"`
		Remaining   int64  `json:"remaining"`
	}
	items := make([]item, len(l.Items))
	for i, it := range l.Items {
		items[i] = item{it.CommodityID, max(0, it.Units)}
	}
	return mustJSON(struct {
		Type       string     `json:"type"`
		ActivityID string     `json:"activityId"`
		State      sale.State `json:"state"`
		Items      []item     `json:"items"`
		ServerTime int64      `json:"serverTime"`
	}{"activity", l.ActivityID, l.State, items, now.UnixMilli()})
}

// placeFrame is the frame that tells a place in a waitlist; 0: no longer in it.
func placeFrame(p *sale.Place) []byte {
	return mustJSON(struct {
		Type        string `json:"type"`
		ActivityID  string `json:"activityId"`
		CommodityID string `json:"commodityId"`
		Position    int64  `json:"position"`
	}{"waitlist", p.ActivityID, p.CommodityID, p.Position})
}

// syncedFrame is the frame that ends the state after a connect or a sync.
func syncedFrame(now time.Time) []byte {
	return mustJSON(struct {
		Type       string `json:"type"`
		ServerTime int64  `json:"serverTime"`
	}{"synced", now.UnixMilli()})
}

// mustJSON encodes strings and numbers; text that is not UTF-8 becomes U+FFFD (FS-083).
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: a frame has no JSON form: " + err.Error())
	}
	return b
}
