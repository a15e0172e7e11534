package push

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"seckill/internal/sale"
)

// The message of a result channel: {"results":[{"userId":"…",…Result},…]}. Ids are strings, so that no JSON reader on
// the way rounds them (FS-023).

func appendMessage(b []byte, rs []sale.UserResult) []byte {
	b = append(b, `{"results":[`...)
	for i := range rs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"userId":"`...)
		b = strconv.AppendInt(b, rs[i].UserID, 10)
		b = append(b, `",`...)
		b = append(rs[i].AppendFields(b), '}')
	}
	return append(b, "]}"...)
}

type wireResult struct {
	UserID       string      `json:"userId"`
	RequestToken string      `json:"requestToken"`
	ActivityID   string      `json:"activityId"`
	CommodityID  string      `json:"commodityId"`
	Quantity     int         `json:"quantity"`
	Status       sale.Status `json:"status"`
	Reason       sale.Reason `json:"reason"`
	OrderNo      string      `json:"orderNo"`
	PayBefore    int64       `json:"payBefore"`
	Version      int64       `json:"version"`
	PollAfterMs  int64       `json:"pollAfterMs"`
}

// wirePlace is a place in a waitlist: {"places":[…]} on the same channels as results.
type wirePlace struct {
	UserID      string `json:"userId"`
	ActivityID  string `json:"activityId"`
	CommodityID string `json:"commodityId"`
	Position    int64  `json:"position"`
	At          int64  `json:"at"`
}

func appendPlaces(ps []sale.Place) []byte {
	out := make([]wirePlace, len(ps))
	for i, p := range ps {
		out[i] = wirePlace{strconv.FormatInt(p.UserID, 10), p.ActivityID, p.CommodityID, p.Position, sale.Millis(p.At)}
	}
	return mustJSON(map[string]any{"places": out})
}

// parseMessage reads a message of a result channel: results or places. What makes no sense is left out.
func parseMessage(payload string) ([]sale.UserResult, []sale.Place, error) {
	var m struct {
		Results []wireResult `json:"results"`
		Places  []wirePlace  `json:"places"`
	}
	if err := json.Unmarshal([]byte(payload), &m); err != nil {
		return nil, nil, fmt.Errorf("read push message: %w", err)
	}
	var places []sale.Place
	for _, w := range m.Places {
		user, err := sale.ParseUserID(w.UserID)
		if err != nil || !sale.ValidID(w.ActivityID) || w.Position < 0 {
			continue
		}
		places = append(places, sale.Place{UserID: user, ActivityID: w.ActivityID, CommodityID: w.CommodityID, Position: w.Position, At: sale.FromMillis(w.At)})
	}
	out := make([]sale.UserResult, 0, len(m.Results))
	for i := range m.Results {
		w := &m.Results[i]
		user, err := sale.ParseUserID(w.UserID)
		if err != nil || !w.Status.Valid() || w.RequestToken == "" {
			continue
		}
		out = append(out, sale.UserResult{UserID: user, Result: sale.Result{
			RequestToken: w.RequestToken, ActivityID: w.ActivityID, CommodityID: w.CommodityID, Quantity: w.Quantity,
			Status: w.Status, Reason: w.Reason, OrderNo: w.OrderNo, PayBefore: sale.FromMillis(w.PayBefore),
			Version: w.Version, PollAfter: time.Duration(w.PollAfterMs) * time.Millisecond,
		}})
	}
	return out, places, nil
}

// The message of a live channel.
type wireLive struct {
	ActivityID string     `json:"activityId"`
	State      sale.State `json:"state"`
	Epoch      int64      `json:"epoch"`
	Seq        int64      `json:"seq"`
	StartsAt   int64      `json:"startsAt"`
	EndsAt     int64      `json:"endsAt"`
	Items      []wireItem `json:"items"`
	At         int64      `json:"at"`
}

type wireItem struct {
	CommodityID string `json:"commodityId"`
	Remaining   int64  `json:"remaining"`
}

func wireItems(items []sale.Remaining) []wireItem {
	out := make([]wireItem, len(items))
	for i, it := range items {
		out[i] = wireItem{CommodityID: it.CommodityID, Remaining: it.Units}
	}
	return out
}

func appendLive(l *sale.Live) []byte {
	return mustJSON(wireLive{
		ActivityID: l.ActivityID, State: l.State, Epoch: l.Epoch, Seq: l.Seq, StartsAt: sale.Millis(l.StartsAt),
		EndsAt: sale.Millis(l.EndsAt), Items: wireItems(l.Items), At: sale.Millis(l.At),
	})
}

func parseLive(payload string) (sale.Live, error) {
	var w wireLive
	if err := json.Unmarshal([]byte(payload), &w); err != nil {
		return sale.Live{}, fmt.Errorf("read live message: %w", err)
	}
	if !sale.ValidID(w.ActivityID) {
		return sale.Live{}, fmt.Errorf("read live message: activity id: %w", sale.ErrBadID)
	}
	l := sale.Live{
		ActivityID: w.ActivityID, State: w.State, Epoch: w.Epoch, Seq: w.Seq, StartsAt: sale.FromMillis(w.StartsAt),
		EndsAt: sale.FromMillis(w.EndsAt), At: sale.FromMillis(w.At), Items: make([]sale.Remaining, len(w.Items)),
	}
	for i, it := range w.Items {
		l.Items[i] = sale.Remaining{CommodityID: it.CommodityID, Units: it.Remaining}
	}
	return l, nil
}

// mustJSON encodes a value made of strings and numbers only; text that is not UTF-8 becomes U+FFFD (FS-083).
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: a message has no JSON form: " + err.Error())
	}
	return b
}
