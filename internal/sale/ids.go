package sale

import (
	"errors"
	"fmt"
	"strconv"
)

// Tables is the number of tables that orders and token logs are spread over, by user (S17).
const Tables = 16

// MaxIDLength is the longest activity or commodity id, in bytes.
const MaxIDLength = 32

// MaxTokenLength is the longest request token, in bytes.
const MaxTokenLength = 64

// MaxOrderNoLength is the longest order number, in digits; a snowflake has at most 19 and the table number two.
const MaxOrderNoLength = 21

// ErrBadID is returned for an id of the wrong form.
var ErrBadID = errors.New("malformed id")

// ValidID reports whether s is a legal activity or commodity id: one to 32 bytes of A-Z, a-z, 0-9, _ and -.
func ValidID(s string) bool {
	return len(s) > 0 && len(s) <= MaxIDLength && wordBytes(s, "")
}

// ValidToken reports whether s has the alphabet and length of a request token. Whether it is genuine is for
// package auth to say.
func ValidToken(s string) bool {
	return len(s) > 0 && len(s) <= MaxTokenLength && wordBytes(s, ".")
}

func wordBytes(s, extra string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		case extra != "" && c == extra[0]:
		default:
			return false
		}
	}
	return true
}

// ParseUserID reads a user id: [1-9][0-9]{0,18}, at most 2^63-1. A sign, a leading zero, a space or any other
// character is ErrBadID, so that one user has exactly one spelling in Redis keys and database rows (FS-058).
func ParseUserID(s string) (int64, error) {
	if len(s) == 0 || len(s) > 19 || s[0] == '0' {
		return 0, fmt.Errorf("user id: %w", ErrBadID)
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, fmt.Errorf("user id: %w", ErrBadID)
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("user id: %w", ErrBadID)
	}
	return n, nil
}

// TableOf returns the number, 0 to 15, of the order and log table that holds a user's rows.
func TableOf(userID int64) int { return int(userID % Tables) }

// OrderNo joins a snowflake and the user's table number: decimal digits, the last two being the table, so that
// an order can be found by its number alone (S15).
func OrderNo(snowflake int64, userID int64) string {
	return fmt.Sprintf("%d%02d", snowflake, TableOf(userID))
}

// TableOfOrderNo returns the table number an order number carries, or ErrBadID.
func TableOfOrderNo(orderNo string) (int, error) {
	if len(orderNo) < 3 || len(orderNo) > MaxOrderNoLength || orderNo[0] == '0' {
		return 0, fmt.Errorf("order number: %w", ErrBadID)
	}
	for i := range len(orderNo) {
		if orderNo[i] < '0' || orderNo[i] > '9' {
			return 0, fmt.Errorf("order number: %w", ErrBadID)
		}
	}
	n, err := strconv.Atoi(orderNo[len(orderNo)-2:])
	if err != nil || n >= Tables {
		return 0, fmt.Errorf("order number: %w", ErrBadID)
	}
	return n, nil
}
