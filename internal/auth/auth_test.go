package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"seckill/internal/sale"
)

var secret = []byte("0123456789abcdef0123456789abcdef")

func clock(at *time.Time) func() time.Time { return func() time.Time { return *at } }

// S3: a request token is bound to its user and sale, lives its time, and any change to it is noticed.
func TestRequestToken(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	rt, err := NewRequestTokens(secret, 10*time.Minute, clock(&now))
	if err != nil {
		t.Fatal(err)
	}
	id := strings.Repeat("A", sale.MaxIDLength)
	token, expires := rt.Issue(42, id)
	if len(token) > sale.MaxTokenLength || !sale.ValidToken(token) {
		t.Fatalf("token %q has %d characters", token, len(token))
	}
	if got, err := rt.Verify(token, 42); err != nil || got != id {
		t.Fatalf("Verify = %q, %v", got, err)
	}
	if _, err := rt.Verify(token, 43); !errors.Is(err, ErrInvalidToken) {
		t.Errorf("another user's token: %v", err)
	}
	for i := range len(token) {
		forged := []byte(token)
		forged[i] ^= 1
		if _, err := rt.Verify(string(forged), 42); !errors.Is(err, ErrInvalidToken) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
	other, _ := NewRequestTokens([]byte("another secret, long enough"), time.Minute, clock(&now))
	if _, err := other.Verify(token, 42); !errors.Is(err, ErrInvalidToken) {
		t.Errorf("another secret: %v", err)
	}
	now = expires
	if got, err := rt.Verify(token, 42); !errors.Is(err, ErrExpiredToken) || got != id {
		t.Errorf("expired: %q, %v", got, err)
	}
	again, _ := rt.Issue(42, id)
	if again == token {
		t.Error("two tokens are equal")
	}
}

// FuzzRequestToken: nothing panics, what is accepted for one user is refused for another, and with any character
// changed it is accepted for nobody.
func FuzzRequestToken(f *testing.F) {
	now := time.Unix(1_800_000_000, 0)
	rt, err := NewRequestTokens(secret, time.Minute, clock(&now))
	if err != nil {
		f.Fatal(err)
	}
	token, _ := rt.Issue(42, "ACT1")
	f.Add(token)
	f.Add(strings.Repeat("A", 31) + ".A")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := rt.Verify(s, 42); err != nil {
			return
		}
		if _, err := rt.Verify(s, 43); err == nil {
			t.Fatalf("%q was accepted for two users", s)
		}
		for i := range len(s) {
			changed := []byte(s)
			changed[i] ^= 1
			if _, err := rt.Verify(string(changed), 42); err == nil {
				t.Fatalf("%q was accepted with byte %d changed", s, i)
			}
		}
	})
}

func verifier(t *testing.T, o JWTOptions) *Verifier {
	t.Helper()
	v, err := NewVerifier(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// S1: HS256 with expiry, issuer and audience; a remembered token still expires.
func TestHS256(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	v := verifier(t, JWTOptions{Secret: secret, Issuer: "shop", Audience: "seckill", Now: clock(&now)})
	good, err := SignHS256(secret, 1<<63-1, "shop", "seckill", now.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second comes from the cache
		id, err := v.Verify(good)
		if err != nil || id.UserID != 1<<63-1 {
			t.Fatalf("Verify = %+v, %v", id, err)
		}
	}
	bad := map[string]string{"empty": "", "garbage": "a.b.c", "long": strings.Repeat("x", MaxJWTBytes+1)}
	bad["issuer"], _ = SignHS256(secret, 42, "other", "seckill", now.Add(time.Minute))
	bad["audience"], _ = SignHS256(secret, 42, "shop", "", now.Add(time.Minute))
	bad["expired"], _ = SignHS256(secret, 42, "shop", "seckill", now.Add(-time.Second))
	bad["secret"], _ = SignHS256([]byte("another secret, 32 bytes long..."), 42, "shop", "seckill", now.Add(time.Minute))
	bad["negative"], _ = SignHS256(secret, -1, "shop", "seckill", now.Add(time.Minute))
	bad["none"], _ = jwt.NewWithClaims(jwt.SigningMethodNone, jwt.RegisteredClaims{Subject: "42", Issuer: "shop",
		Audience: jwt.ClaimStrings{"seckill"}, ExpiresAt: jwt.NewNumericDate(now.Add(time.Minute))}).SignedString(jwt.UnsafeAllowNoneSignatureType)
	bad["no exp"], _ = jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{Subject: "42", Issuer: "shop",
		Audience: jwt.ClaimStrings{"seckill"}}).SignedString(secret)
	for name, token := range bad {
		if _, err := v.Verify(token); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
	now = now.Add(time.Minute)
	if _, err := v.Verify(good); !errors.Is(err, ErrUnauthenticated) {
		t.Errorf("a remembered token outlived its expiry: %v", err)
	}
}

func claims(now time.Time) jwt.RegisteredClaims {
	return jwt.RegisteredClaims{Subject: "42", ExpiresAt: jwt.NewNumericDate(now.Add(time.Minute))}
}

func publicPEM(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// S1: RS256 and ES256 by a key in the configuration and by JWKS; a public key is never taken as an HS256 secret.
func TestPublicKeys(t *testing.T) {
	t.Parallel()
	now := time.Now()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(m jwt.SigningMethod, kid string, key any) string {
		tok := jwt.NewWithClaims(m, claims(now))
		tok.Header["kid"] = kid
		s, err := tok.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	rs, es := sign(jwt.SigningMethodRS256, "r", rsaKey), sign(jwt.SigningMethodES256, "e", ecKey)
	rsaPEM := publicPEM(t, &rsaKey.PublicKey)
	confused := sign(jwt.SigningMethodHS256, "r", rsaPEM)

	b64 := base64.RawURLEncoding.EncodeToString
	jwks, _ := json.Marshal(map[string]any{"keys": []map[string]string{
		{"kty": "RSA", "kid": "r", "alg": "RS256", "use": "sig", "n": b64(rsaKey.N.Bytes()), "e": b64(big.NewInt(int64(rsaKey.E)).Bytes())},
		{"kty": "EC", "kid": "e", "alg": "ES256", "use": "sig", "crv": "P-256", "x": b64(ecKey.X.FillBytes(make([]byte, 32))), "y": b64(ecKey.Y.FillBytes(make([]byte, 32)))},
	}})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(jwks) }))
	t.Cleanup(srv.Close)

	for name, c := range map[string]struct {
		o         JWTOptions
		good, bad []string
	}{
		"rsa pem": {JWTOptions{PublicKeyPEM: rsaPEM}, []string{rs}, []string{es, confused}},
		"ec pem":  {JWTOptions{PublicKeyPEM: publicPEM(t, &ecKey.PublicKey)}, []string{es}, []string{rs, confused}},
		"jwks":    {JWTOptions{JWKSURL: srv.URL}, []string{rs, es}, []string{confused}},
	} {
		v := verifier(t, c.o)
		for _, tok := range c.good {
			if id, err := v.Verify(tok); err != nil || id.UserID != 42 {
				t.Errorf("%s: good token: %+v, %v", name, id, err)
			}
		}
		for _, tok := range c.bad {
			if _, err := v.Verify(tok); !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("%s: bad token: %v", name, err)
			}
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]JWTOptions{
		"nothing": {}, "two": {Secret: secret, JWKSURL: "http://127.0.0.1:1"}, "short": {Secret: []byte("short")}, "no pem": {PublicKeyPEM: []byte("x")},
	} {
		if _, err := NewVerifier(t.Context(), o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := NewRequestTokens([]byte("short"), time.Minute, time.Now); err == nil {
		t.Error("short request token secret accepted")
	}
	if Equal("", "") || Equal("a", "") || !Equal("a", "a") || Equal("a", "b") {
		t.Error("Equal is wrong")
	}
}
