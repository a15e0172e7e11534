package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/rsa"
	"errors"
	"fmt"
	"time"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	lru "github.com/hashicorp/golang-lru/v2"

	"seckill/internal/sale"
)

// ErrUnauthenticated is returned for a token that is missing, malformed, forged, expired or for another audience.
var ErrUnauthenticated = errors.New("unauthenticated")

// JWTOptions says which tokens are good. Exactly one of Secret, PublicKeyPEM and JWKSURL must be set.
type JWTOptions struct {
	Secret       []byte           // HS256, at least 16 bytes
	PublicKeyPEM []byte           // RS256 or ES256, by the kind of key
	JWKSURL      string           // RS256 and ES256 keys by id, refreshed in the background
	Issuer       string           // required value of iss when set
	Audience     string           // required value of aud when set
	CacheSize    int              // verified tokens remembered; default 100,000
	Now          func() time.Time // default time.Now
}

// MinSecretBytes is the shortest HS256 secret accepted.
const MinSecretBytes = 16

// Verifier checks JWTs. It remembers the tokens it found good, until they expire, because verifying a signature
// costs more than the rest of a request.
type Verifier struct {
	parser *jwt.Parser
	key    jwt.Keyfunc
	now    func() time.Time
	good   *lru.Cache[string, Identity]
}

// Identity is what a good token says.
type Identity struct {
	UserID    int64
	ExpiresAt time.Time
}

// NewVerifier returns a verifier. With a JWKS URL it fetches the keys in the background until ctx ends.
func NewVerifier(ctx context.Context, o JWTOptions) (*Verifier, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.CacheSize <= 0 {
		o.CacheSize = 100_000
	}
	key, methods, err := keyOf(ctx, o)
	if err != nil {
		return nil, err
	}
	opts := []jwt.ParserOption{jwt.WithValidMethods(methods), jwt.WithExpirationRequired(), jwt.WithTimeFunc(o.Now)}
	if o.Issuer != "" {
		opts = append(opts, jwt.WithIssuer(o.Issuer))
	}
	if o.Audience != "" {
		opts = append(opts, jwt.WithAudience(o.Audience))
	}
	good, err := lru.New[string, Identity](o.CacheSize)
	if err != nil {
		return nil, fmt.Errorf("jwt cache: %w", err)
	}
	return &Verifier{parser: jwt.NewParser(opts...), key: key, now: o.Now, good: good}, nil
}

func keyOf(ctx context.Context, o JWTOptions) (jwt.Keyfunc, []string, error) {
	set := 0
	for _, given := range []bool{len(o.Secret) > 0, len(o.PublicKeyPEM) > 0, o.JWKSURL != ""} {
		if given {
			set++
		}
	}
	if set != 1 {
		return nil, nil, errors.New("auth: exactly one of the HS256 secret, the public key and the JWKS URL must be configured")
	}
	switch {
	case len(o.Secret) > 0:
		if len(o.Secret) < MinSecretBytes {
			return nil, nil, fmt.Errorf("auth: the HS256 secret has %d bytes, at least %d are needed", len(o.Secret), MinSecretBytes)
		}
		return func(*jwt.Token) (any, error) { return o.Secret, nil }, []string{"HS256"}, nil
	case o.JWKSURL != "":
		keys, err := keyfunc.NewDefaultCtx(ctx, []string{o.JWKSURL})
		if err != nil {
			return nil, nil, fmt.Errorf("auth: JWKS: %w", err)
		}
		return keys.Keyfunc, []string{"RS256", "ES256"}, nil
	}
	var rsaKey *rsa.PublicKey
	rsaKey, err := jwt.ParseRSAPublicKeyFromPEM(o.PublicKeyPEM)
	if err == nil {
		return func(*jwt.Token) (any, error) { return rsaKey, nil }, []string{"RS256"}, nil
	}
	var ecKey *ecdsa.PublicKey
	if ecKey, err = jwt.ParseECPublicKeyFromPEM(o.PublicKeyPEM); err != nil {
		return nil, nil, errors.New("auth: the public key is neither an RSA nor an EC key in PEM form")
	}
	return func(*jwt.Token) (any, error) { return ecKey, nil }, []string{"ES256"}, nil
}

// MaxJWTBytes is the longest token looked at.
const MaxJWTBytes = 4 << 10

// Verify returns the identity of a token, or ErrUnauthenticated with a reason that is safe to show.
func (v *Verifier) Verify(token string) (Identity, error) {
	if token == "" || len(token) > MaxJWTBytes {
		return Identity{}, fmt.Errorf("%w: a bearer token is required", ErrUnauthenticated)
	}
	if id, ok := v.good.Get(token); ok {
		if v.now().Before(id.ExpiresAt) {
			return id, nil
		}
		return Identity{}, fmt.Errorf("%w: token is expired", ErrUnauthenticated)
	}
	var claims jwt.RegisteredClaims
	if _, err := v.parser.ParseWithClaims(token, &claims, v.key); err != nil {
		if errors.Is(err, jwt.ErrTokenExpired) {
			return Identity{}, fmt.Errorf("%w: token is expired", ErrUnauthenticated)
		}
		return Identity{}, fmt.Errorf("%w: token is not valid", ErrUnauthenticated)
	}
	user, err := sale.ParseUserID(claims.Subject)
	if err != nil {
		return Identity{}, fmt.Errorf("%w: sub is no user id", ErrUnauthenticated)
	}
	id := Identity{UserID: user, ExpiresAt: claims.ExpiresAt.Time}
	// A caller may reuse the bytes behind the string it gave; the cache keeps a copy (FS-024).
	v.good.Add(string([]byte(token)), id)
	return id, nil
}

// SignHS256 makes a token for a user: for the demo login, the command line and tests.
func SignHS256(secret []byte, userID int64, issuer, audience string, expires time.Time) (string, error) {
	claims := jwt.RegisteredClaims{
		Subject: fmt.Sprint(userID), Issuer: issuer, ExpiresAt: jwt.NewNumericDate(expires),
	}
	if audience != "" {
		claims.Audience = jwt.ClaimStrings{audience}
	}
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(secret)
	if err != nil {
		return "", fmt.Errorf("sign token: %w", err)
	}
	return token, nil
}
