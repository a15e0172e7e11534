package queue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"seckill/internal/sale"
)

// Version is the schema version of the order message.
const Version = 1

// ErrMalformed is returned for a message that no retry can mend.
var ErrMalformed = errors.New("malformed order message")

// message is the order message on the wire (S8). Ids of 64 bits are JSON numbers here, as the contract has them;
// Go reads and writes them exactly, and they never reach a browser in this form.
type message struct {
	V             int         `json:"v"`
	RequestToken  string      `json:"requestToken"`
	UserID        json.Number `json:"userId"`
	CommodityID   string      `json:"commodityId"`
	ActivityID    string      `json:"activityId"`
	SeckillPrice  price       `json:"seckillPrice"`
	Quantity      int         `json:"quantity"`
	StockPayToken string      `json:"stockPayToken"`
	Epoch         int64       `json:"epoch"`
	Timestamp     int64       `json:"timestamp"`
}

// price is written as a decimal string and read as a string or a number, keeping its digits.
type price string

func (p *price) UnmarshalJSON(b []byte) error {
	if len(b) > 1 && b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		*p = price(s)
		return nil
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	*p = price(n)
	return nil
}

// Encode writes the message of a reservation.
func Encode(r sale.Reservation) []byte {
	b := make([]byte, 0, 320)
	b = append(b, `{"v":1,"requestToken":"`...)
	b = append(b, r.Token...) // tokens and ids have an alphabet that needs no escaping
	b = append(b, `","userId":`...)
	b = strconv.AppendInt(b, r.UserID, 10)
	b = append(b, `,"commodityId":"`...)
	b = append(b, r.CommodityID...)
	b = append(b, `","activityId":"`...)
	b = append(b, r.ActivityID...)
	b = append(b, `","seckillPrice":"`...)
	b = append(b, sale.FormatMoney(r.Price)...)
	b = append(b, `","quantity":`...)
	b = strconv.AppendInt(b, int64(r.Quantity), 10)
	b = append(b, `,"stockPayToken":"`...)
	b = append(b, r.Token...)
	b = append(b, `","epoch":`...)
	b = strconv.AppendInt(b, r.Epoch, 10)
	b = append(b, `,"timestamp":`...)
	b = strconv.AppendInt(b, r.At.UnixMilli(), 10)
	return append(b, '}')
}

// Decode reads a message and checks every field. What could be read is returned beside an error that wraps
// ErrMalformed, so that a dead letter can still name its token. Fields unknown to this version are ignored: a newer
// producer may add some. stockPayToken is for other readers of the topic; the reservation is named by requestToken.
func Decode(value []byte, maxBytes int) (sale.Reservation, error) {
	if len(value) > maxBytes {
		return sale.Reservation{}, fmt.Errorf("%w: %d bytes, at most %d", ErrMalformed, len(value), maxBytes)
	}
	if !utf8.Valid(value) {
		return sale.Reservation{}, fmt.Errorf("%w: not UTF-8", ErrMalformed)
	}
	var m message
	dec := json.NewDecoder(bytes.NewReader(value))
	if err := dec.Decode(&m); err != nil {
		return partial(m), fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return partial(m), fmt.Errorf("%w: more than one value", ErrMalformed)
	}
	return m.reservation()
}

func partial(m message) sale.Reservation {
	r := sale.Reservation{}
	if sale.ValidToken(m.RequestToken) {
		r.Token = m.RequestToken
	}
	if sale.ValidID(m.ActivityID) {
		r.ActivityID = m.ActivityID
	}
	if id, err := sale.ParseUserID(string(m.UserID)); err == nil {
		r.UserID = id
	}
	return r
}

// maxTimestamp is the year 9999 in epoch milliseconds: more is surely no time.
const maxTimestamp = 253_402_300_799_999

func (m message) reservation() (sale.Reservation, error) {
	r := partial(m)
	bad := func(field string) (sale.Reservation, error) {
		return r, fmt.Errorf("%w: field %s", ErrMalformed, field)
	}
	switch {
	case m.V != Version:
		return bad("v")
	case r.Token == "":
		return bad("requestToken")
	case r.UserID == 0:
		return bad("userId")
	case r.ActivityID == "":
		return bad("activityId")
	case !sale.ValidID(m.CommodityID):
		return bad("commodityId")
	case m.Quantity < 1 || m.Quantity > sale.MaxQuantity:
		return bad("quantity")
	case m.StockPayToken != "" && !sale.ValidToken(m.StockPayToken):
		return bad("stockPayToken")
	case m.Epoch < 0:
		return bad("epoch")
	case m.Timestamp <= 0 || m.Timestamp > maxTimestamp:
		return bad("timestamp")
	}
	amount, err := sale.ParseMoney(string(m.SeckillPrice))
	if err != nil {
		return bad("seckillPrice")
	}
	r.CommodityID, r.Quantity, r.Epoch = m.CommodityID, m.Quantity, m.Epoch
	r.Price, r.At = amount, time.UnixMilli(m.Timestamp).UTC()
	return r, nil
}
