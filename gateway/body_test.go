package gateway

import (
	"errors"
	"strings"
	"testing"

	"seckill/internal/sale"
)

func order(body string) (orderBody, error) {
	b := orderBody{Quantity: unset}
	if err := decodeStrict([]byte(body), &b); err != nil {
		return b, err
	}
	return b.checked()
}

// FS-022, FS-023, FS-029: what is not a clean order body is refused with a stable code before anything is asked.
func TestOrderBody(t *testing.T) {
	t.Parallel()
	for body, code := range map[string]sale.Code{
		``:                                  sale.CodeInvalidRequest,
		`null`:                              sale.CodeInvalidRequest,
		`[]`:                                sale.CodeInvalidRequest,
		`"x"`:                               sale.CodeInvalidRequest,
		`{`:                                 sale.CodeInvalidRequest,
		`{}`:                                sale.CodeInvalidRequest,
		`{} {}`:                             sale.CodeInvalidRequest,
		strings.Repeat("[", 10_000):         sale.CodeInvalidRequest,
		`{"a":` + strings.Repeat("[", 9000): sale.CodeInvalidRequest,
		`{"requestToken":"t","commodityId":"C","x":1}`:                         sale.CodeInvalidRequest,
		`{"requestToken":"t","requestToken":"u","commodityId":"C"}`:            sale.CodeInvalidRequest,
		`{"requestToken":"t","commodityId":"C","quantity":0}`:                  sale.CodeInvalidRequest,
		`{"requestToken":"t","commodityId":"C","quantity":-1}`:                 sale.CodeInvalidRequest,
		`{"requestToken":"t","commodityId":"C","quantity":-5}`:                 sale.CodeInvalidRequest,
		`{"requestToken":"t","commodityId":"C","quantity":101}`:                sale.CodeInvalidRequest,
		`{"requestToken":"t","commodityId":"C","quantity":1.5}`:                sale.CodeInvalidRequest,
		`{"requestToken":"t","commodityId":"C","quantity":"1"}`:                sale.CodeInvalidRequest,
		`{"requestToken":"t","commodityId":"C","quantity":1e400}`:              sale.CodeInvalidRequest,
		`{"requestToken":"t","commodityId":"C","quantity":null}`:               sale.CodeInvalidRequest,
		`{"requestToken":"t","commodityId":"C","quantity":99999999999999}`:     sale.CodeInvalidRequest,
		`{"requestToken":"t","commodityId":"a b"}`:                             sale.CodeInvalidRequest,
		`{"requestToken":"t","commodityId":"` + strings.Repeat("c", 33) + `"}`: sale.CodeInvalidRequest,
		`{"requestToken":"t","commodityId":7}`:                                 sale.CodeInvalidRequest,
		`{"requestToken":"t!","commodityId":"C"}`:                              sale.CodeInvalidToken,
		`{"requestToken":"` + strings.Repeat("t", 65) + `","commodityId":"C"}`: sale.CodeInvalidToken,
		"{\"requestToken\":\"\xff\",\"commodityId\":\"C\"}":                    sale.CodeInvalidRequest,
	} {
		_, err := order(body)
		var p *problem
		if !errors.As(err, &p) || p.Code != code {
			t.Errorf("%.80q: %v, want %s", body, err, code)
		}
	}
	b, err := order(`{"requestToken":"t.A-_9","commodityId":"C1"}`)
	if err != nil || b.Quantity != 1 || b.RequestToken != "t.A-_9" || b.CommodityID != "C1" {
		t.Errorf("a good body: %+v, %v", b, err)
	}
}

// FuzzOrderBody: nothing panics, every refusal has a code, and what is accepted is in range.
func FuzzOrderBody(f *testing.F) {
	f.Add([]byte(`{"requestToken":"t","commodityId":"C","quantity":1}`))
	f.Add([]byte(`{"requestToken":"t","commodityId":"C","quantity":1e400}`))
	f.Add([]byte(`{"a":[[[[`))
	f.Fuzz(func(t *testing.T, body []byte) {
		b, err := order(string(body))
		if err != nil {
			var p *problem
			if !errors.As(err, &p) || httpStatus[p.Code] == 0 {
				t.Fatalf("%v has no code", err)
			}
			return
		}
		if b.Quantity < 1 || b.Quantity > sale.MaxQuantity || !sale.ValidID(b.CommodityID) || !sale.ValidToken(b.RequestToken) {
			t.Fatalf("accepted %+v", b)
		}
	})
}

// FuzzParseActivity: an operator's body is accepted only when it is valid as a whole.
func FuzzParseActivity(f *testing.F) {
	f.Add([]byte(`{"title":"x","startsAt":1,"endsAt":"2026-01-01T00:00:00Z","items":[{"commodityId":"C","title":"t","price":"1.00","total":1}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := ParseActivity(body, func() string { return "NEW" })
		if err == nil && a.Validate() != nil {
			t.Fatalf("accepted %+v", a)
		}
	})
}

// FS-060: prices are exact, and a cent above the largest amount is refused.
func TestParseActivityPrices(t *testing.T) {
	t.Parallel()
	body := func(price string, limit string) []byte {
		return []byte(`{"activityId":"A","title":"x","startsAt":1000,"endsAt":2000,"items":[{"commodityId":"C","title":"t","price":` + price + `,"total":1,"maxPerUser":` + limit + `}]}`)
	}
	for price, want := range map[string]string{`"0.10"`: "0.10", `19.99`: "19.99", `"99999999.99"`: "99999999.99", `0`: "0.00"} {
		a, err := ParseActivity(body(price, "1"), nil)
		if err != nil || sale.FormatMoney(a.Items[0].Price) != want {
			t.Errorf("%s: %+v, %v", price, a, err)
		}
	}
	for _, price := range []string{`"100000000.00"`, `"0.001"`, `-1`, `"1e2"`, `null`, `""`, `true`} {
		if _, err := ParseActivity(body(price, "1"), nil); err == nil {
			t.Errorf("%s accepted", price)
		}
	}
	if _, err := ParseActivity(body(`"99999999.99"`, "2"), nil); err == nil {
		t.Error("price x quantity above the largest amount accepted")
	}
}
