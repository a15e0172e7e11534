package auth

import (
	"errors"
	"testing"
	"time"
)

// A change of the secret: what was issued under the one before stays good while that is named, for its user alone.
func TestRequestTokenSecretBefore(t *testing.T) {
	t.Parallel()
	tokensOf := func(secret string) *RequestTokens {
		tokens, err := NewRequestTokens([]byte(secret), time.Minute, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		return tokens
	}
	older, newer := tokensOf("the secret before, long enough"), tokensOf("the secret now, long enough")
	token, _ := older.Issue(42, "SALE")
	if _, err := newer.Verify(token, 42); !errors.Is(err, ErrInvalidToken) {
		t.Errorf("without the older secret: %v", err)
	}
	newer.AlsoAccept([]byte("the secret before, long enough"))
	if id, err := newer.Verify(token, 42); err != nil || id != "SALE" {
		t.Errorf("with it: %q %v", id, err)
	}
	if _, err := newer.Verify(token, 43); !errors.Is(err, ErrInvalidToken) {
		t.Errorf("of another user: %v", err)
	}
	fresh, _ := newer.Issue(42, "SALE")
	if _, err := older.Verify(fresh, 42); !errors.Is(err, ErrInvalidToken) {
		t.Errorf("the newer secret signs: %v", err)
	}
}
