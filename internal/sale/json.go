package sale

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// AppendFields appends the JSON members of a result, without braces, in the form that HTTP answers and socket frames
// share: times in epoch milliseconds, absent values left out, text always valid UTF-8 (FS-083), ids as strings (FS-087).
func (r *Result) AppendFields(b []byte) []byte {
	b = appendString(append(b, `"requestToken":`...), r.RequestToken)
	b = appendString(append(b, `,"activityId":`...), r.ActivityID)
	b = appendString(append(b, `,"commodityId":`...), r.CommodityID)
	b = strconv.AppendInt(append(b, `,"quantity":`...), int64(r.Quantity), 10)
	b = appendString(append(b, `,"status":`...), string(r.Status))
	if r.Reason != "" {
		b = appendString(append(b, `,"reason":`...), string(r.Reason))
	}
	if r.OrderNo != "" {
		b = appendString(append(b, `,"orderNo":`...), r.OrderNo)
	}
	if !r.PayBefore.IsZero() {
		b = strconv.AppendInt(append(b, `,"payBefore":`...), r.PayBefore.UnixMilli(), 10)
	}
	b = strconv.AppendInt(append(b, `,"version":`...), r.Version, 10)
	if r.PollAfter > 0 {
		b = strconv.AppendInt(append(b, `,"pollAfterMs":`...), r.PollAfter.Milliseconds(), 10)
	}
	return b
}

// appendString appends a JSON string. Ids and codes need no escaping and take the short way.
func appendString(b []byte, s string) []byte {
	plain := true
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			plain = false
			break
		}
	}
	if plain {
		b = append(b, '"')
		b = append(b, s...)
		return append(b, '"')
	}
	q, err := json.Marshal(strings.ToValidUTF8(s, "\uFFFD"))
	if err != nil {
		panic("BUG: a string has no JSON form: " + err.Error())
	}
	return append(b, q...)
}

// Millis returns the epoch milliseconds of t, and 0 for the zero time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// FromMillis is the inverse of Millis.
func FromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
