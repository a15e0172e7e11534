package sale

import (
	"errors"
	"fmt"

	"github.com/shopspring/decimal"
)

// MaxAmount is the largest amount an order may have: what decimal(10,2) holds.
var MaxAmount = decimal.New(9_999_999_999, -2)

// ErrBadMoney is returned for an amount that is negative, has more than two places, or exceeds MaxAmount.
var ErrBadMoney = errors.New("amount must be between 0.00 and 99999999.99 with at most two places")

// ParseMoney reads a decimal amount with at most two places, such as "99.00" or "0.1". Exponents, signs and
// spaces are refused: the text form is what travels, so it has one spelling (FS-060).
func ParseMoney(s string) (decimal.Decimal, error) {
	if len(s) == 0 || len(s) > 11 {
		return decimal.Zero, fmt.Errorf("amount %.16q: %w", s, ErrBadMoney)
	}
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && s[i] != '.' {
			return decimal.Zero, fmt.Errorf("amount %.16q: %w", s, ErrBadMoney)
		}
	}
	d, err := decimal.NewFromString(s)
	if err != nil || !d.Equal(d.Truncate(2)) || d.GreaterThan(MaxAmount) {
		return decimal.Zero, fmt.Errorf("amount %.16q: %w", s, ErrBadMoney)
	}
	return d, nil
}

// FormatMoney writes an amount with exactly two places.
func FormatMoney(d decimal.Decimal) string { return d.StringFixed(2) }

// Amount is price times quantity, or ErrBadMoney above MaxAmount.
func Amount(price decimal.Decimal, quantity int) (decimal.Decimal, error) {
	total := price.Mul(decimal.NewFromInt(int64(quantity)))
	if total.IsNegative() || total.GreaterThan(MaxAmount) {
		return decimal.Zero, fmt.Errorf("%s x %d: %w", price, quantity, ErrBadMoney)
	}
	return total, nil
}
