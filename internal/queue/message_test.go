package queue

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"seckill/internal/sale"
)

// S8: what is written is what is read, digit for digit (FS-023, FS-060).
func TestMessageRoundTrip(t *testing.T) {
	t.Parallel()
	for _, user := range []int64{1, 738529527931269425, 1<<63 - 1} {
		want := sale.Reservation{
			Token: "tok.A", UserID: user, ActivityID: "ACT20240601", CommodityID: "SP1", Price: decimal.RequireFromString("99999999.99"),
			Quantity: 2, Epoch: 7, At: time.UnixMilli(1717200000123).UTC(),
		}
		got, err := Decode(Encode(want), 8<<10)
		if err != nil {
			t.Fatal(err)
		}
		if got.UserID != want.UserID || !got.Price.Equal(want.Price) || !got.At.Equal(want.At) || got.Token != want.Token ||
			got.ActivityID != want.ActivityID || got.CommodityID != want.CommodityID || got.Quantity != 2 || got.Epoch != 7 {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

const valid = `{"v":1,"requestToken":"tok","userId":100123,"commodityId":"SP1","activityId":"A1","seckillPrice":"99.00","quantity":1,"stockPayToken":"other","epoch":3,"timestamp":1717200000000}`

// The contract reads seckillPrice as a number too, and userId as text or number (FS-097).
func TestDecodeLenientForms(t *testing.T) {
	t.Parallel()
	for _, msg := range []string{
		valid,
		strings.Replace(valid, `"99.00"`, `99.00`, 1),
		strings.Replace(valid, `100123`, `"100123"`, 1),
		strings.Replace(valid, `"v":1`, `"v":1,"later":{"x":[1]}`, 1),
	} {
		r, err := Decode([]byte(msg), 8<<10)
		if err != nil {
			t.Errorf("%s: %v", msg, err)
		}
		if r.UserID != 100123 || sale.FormatMoney(r.Price) != "99.00" {
			t.Errorf("%s: got %+v", msg, r)
		}
	}
}

// FS-051: each broken field is refused, and what could be read is kept.
func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][2]string{
		"version":    {`"v":1`, `"v":2`},
		"token":      {`"tok"`, `"a b"`},
		"user zero":  {`100123`, `0`},
		"user big":   {`100123`, `9223372036854775808`},
		"user float": {`100123`, `1e5`},
		"commodity":  {`"SP1"`, `"é"`},
		"activity":   {`"A1"`, `""`},
		"price":      {`"99.00"`, `"99.001"`},
		"price neg":  {`"99.00"`, `-1`},
		"price exp":  {`"99.00"`, `1e400`},
		"quantity":   {`"quantity":1`, `"quantity":-5`},
		"quantity0":  {`"quantity":1`, `"quantity":0`},
		"quantity f": {`"quantity":1`, `"quantity":1.5`},
		"time":       {`1717200000000`, `0`},
		"epoch":      {`"epoch":3`, `"epoch":-1`},
		"trailing":   {`}`, `}{}`},
		"utf8":       {`"other"`, "\"\xff\""},
	} {
		msg := strings.Replace(valid, change[0], change[1], 1)
		if msg == valid {
			t.Fatalf("%s: nothing changed", name)
		}
		if _, err := Decode([]byte(msg), 8<<10); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := Decode([]byte(valid), 100); !errors.Is(err, ErrMalformed) {
		t.Errorf("oversized: %v", err)
	}
	r, _ := Decode([]byte(strings.Replace(valid, `"quantity":1`, `"quantity":-5`, 1)), 8<<10)
	if r.Token != "tok" || r.UserID != 100123 || r.ActivityID != "A1" {
		t.Errorf("readable part lost: %+v", r)
	}
}

// S10: partitions follow from the peak rate.
func TestPartitions(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]int{{0, 2000, 3}, {1, 2000, 3}, {6000, 2000, 3}, {6001, 2000, 4}, {100_000, 2000, 50}} {
		if got := Partitions(c[0], c[1]); got != c[2] {
			t.Errorf("Partitions(%d, %d) = %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

// FuzzDecode: whatever comes, Decode neither panics nor accepts what Encode would not write back.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(valid))
	f.Add([]byte("not-json {{{"))
	f.Add([]byte(`{"v":1,"userId":1e400}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(b, 8<<10)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("error without its kind: %v", err)
			}
			return
		}
		again, err := Decode(Encode(r), 8<<10)
		if err != nil || again.Token != r.Token || again.UserID != r.UserID || !again.Price.Equal(r.Price) || again.Quantity != r.Quantity {
			t.Fatalf("%+v came back as %+v, %v", r, again, err)
		}
	})
}
