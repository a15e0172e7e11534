package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"sync"
	"time"

	"seckill/internal/sale"
)

// ErrInvalidToken is returned for a request token that is malformed, forged, for another user or another sale.
var ErrInvalidToken = errors.New("request token is not valid")

// ErrExpiredToken is returned, with the token's activity, for a genuine token past its life. It may still have been
// used in time: a repeat of an accepted order is answered all the same (S3).
var ErrExpiredToken = errors.New("request token is expired")

// Layout of a request token: base64url(expiry 4 bytes, random 7, MAC 12), a dot, the activity id. The MAC is the
// head of HMAC-SHA256 over expiry, random, user and activity, so the token is bound to both and needs no storage.
// 31 characters and the dot leave 32 for the activity: at most 64.
const (
	expiryBytes = 4
	randomBytes = 7
	macBytes    = 12
	bodyBytes   = expiryBytes + randomBytes + macBytes
	bodyChars   = 31
)

// RequestTokens makes and checks request tokens.
type RequestTokens struct {
	life   time.Duration
	now    func() time.Time
	macs   sync.Pool
	before *sync.Pool // of the secret before, or nil
}

// MinRequestSecretBytes is the shortest signing secret accepted.
const MinRequestSecretBytes = 16

// NewRequestTokens returns a maker of tokens that live this long. All gateways must share the secret.
func NewRequestTokens(secret []byte, life time.Duration, now func() time.Time) (*RequestTokens, error) {
	if len(secret) < MinRequestSecretBytes {
		return nil, fmt.Errorf("auth: the request token secret has %d bytes, at least %d are needed", len(secret), MinRequestSecretBytes)
	}
	return &RequestTokens{
		life: life, now: now,
		macs: sync.Pool{New: func() any { return hmac.New(sha256.New, secret) }},
	}, nil
}

// AlsoAccept has tokens of an earlier secret count as issued, for as long as there may be some on their way: without it, a change of
// the secret would leave those who have one without an answer.
func (t *RequestTokens) AlsoAccept(before []byte) {
	t.before = &sync.Pool{New: func() any { return hmac.New(sha256.New, before) }}
}

// Issue makes a token for this user and sale.
func (t *RequestTokens) Issue(userID int64, activityID string) (token string, expires time.Time) {
	expires = t.now().Add(t.life).Truncate(time.Second)
	var body [bodyBytes]byte
	binary.BigEndian.PutUint32(body[:], uint32(expires.Unix()))
	_, _ = rand.Read(body[expiryBytes : expiryBytes+randomBytes]) // never fails, see crypto/rand
	sign(&t.macs, body[:], userID, activityID)
	return base64.RawURLEncoding.EncodeToString(body[:]) + "." + activityID, expires
}

// Promoted makes the token of a waitlist promotion, always the same for a returned token and a user (R12). It is past
// its life from the start: it names a result, and buys nothing.
func (t *RequestTokens) Promoted(returned string, userID int64, activityID string) string {
	var body [bodyBytes]byte
	sum := sha256.Sum256([]byte("promotion of " + returned))
	copy(body[expiryBytes:expiryBytes+randomBytes], sum[:])
	sign(&t.macs, body[:], userID, activityID)
	return base64.RawURLEncoding.EncodeToString(body[:]) + "." + activityID
}

func sign(macs *sync.Pool, body []byte, userID int64, activityID string) {
	mac := macs.Get().(hash.Hash)
	defer macs.Put(mac)
	mac.Reset()
	var scratch [96]byte
	in := append(scratch[:0], body[:expiryBytes+randomBytes]...)
	in = strconv.AppendInt(in, userID, 10)
	in = append(in, '.')
	in = append(in, activityID...)
	mac.Write(in)
	var sum [sha256.Size]byte
	copy(body[expiryBytes+randomBytes:], mac.Sum(sum[:0])[:macBytes])
}

// ActivityOf returns the sale a token claims to be for, without checking its signature.
func ActivityOf(token string) (string, error) {
	if len(token) < bodyChars+2 || len(token) > sale.MaxTokenLength || token[bodyChars] != '.' || !sale.ValidID(token[bodyChars+1:]) {
		return "", ErrInvalidToken
	}
	return token[bodyChars+1:], nil
}

// Verify checks that the token was issued to this user. The activity is returned with nil and with ErrExpiredToken.
func (t *RequestTokens) Verify(token string, userID int64) (activityID string, err error) {
	activityID, err = ActivityOf(token)
	if err != nil {
		return "", err
	}
	var given [bodyBytes]byte
	var chars [bodyChars]byte
	copy(chars[:], token)
	// Strict: of the spellings that decode alike only the one that was issued is good.
	if _, err := base64.RawURLEncoding.Strict().Decode(given[:], chars[:]); err != nil {
		return "", ErrInvalidToken
	}
	signedBy := func(macs *sync.Pool) bool {
		want := given
		sign(macs, want[:], userID, activityID)
		return subtle.ConstantTimeCompare(given[:], want[:]) == 1
	}
	if !signedBy(&t.macs) && (t.before == nil || !signedBy(t.before)) {
		return "", ErrInvalidToken
	}
	if t.now().Unix() >= int64(binary.BigEndian.Uint32(given[:])) {
		return activityID, ErrExpiredToken
	}
	return activityID, nil
}

// Equal compares an admin token in constant time. An empty want is never equal.
func Equal(given, want string) bool {
	g, w := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(want))
	return want != "" && subtle.ConstantTimeCompare(g[:], w[:]) == 1
}
