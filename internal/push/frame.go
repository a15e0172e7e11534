package push

import (
	"time"

	"seckill/internal/sale"
)

// ResultJSON is a result as HTTP answers carry it: times in epoch milliseconds, absent values left out, always valid
// UTF-8 (FS-083).
func ResultJSON(r sale.Result) []byte {
	return append(r.AppendFields(append(make([]byte, 0, 320), '{')), '}')
}

// EncodeResult is the frame {"type":"result",…}.
func EncodeResult(r sale.Result) []byte {
	return append(r.AppendFields(append(make([]byte, 0, 320), `{"type":"result",`...)), '}')
}

// EncodeLive is the frame {"type":"activity",…}; its server time is the moment the state was read.
func EncodeLive(l sale.Live) []byte {
	return mustJSON(struct {
		Type       string     `json:"type"`
		ActivityID string     `json:"activityId"`
		State      sale.State `json:"state"`
		Items      []wireItem `json:"items"`
		ServerTime int64      `json:"serverTime"`
	}{"activity", l.ActivityID, l.State, wireItems(l.Items), sale.Millis(l.At)})
}

// EncodeSynced is the frame that ends the state sent after a connect or a sync.
func EncodeSynced(now time.Time) []byte {
	return mustJSON(struct {
		Type       string `json:"type"`
		ServerTime int64  `json:"serverTime"`
	}{"synced", sale.Millis(now)})
}

// EncodeWaitlist is the frame that tells a user the place on a waitlist, 1 being next.
func EncodeWaitlist(activityID string, position int64) []byte {
	return mustJSON(struct {
		Type       string `json:"type"`
		ActivityID string `json:"activityId"`
		Position   int64  `json:"position"`
	}{"waitlist", activityID, position})
}
