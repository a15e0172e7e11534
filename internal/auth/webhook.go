package auth

import (
	"fmt"
	"net/http"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// Webhooks verifies and signs callbacks in the Standard Webhooks form: headers webhook-id, webhook-timestamp and
// webhook-signature, HMAC-SHA256 over id.timestamp.body, five minutes of tolerance.
type Webhooks struct{ hook *standardwebhooks.Webhook }

// MinWebhookSecretBytes is the shortest secret accepted.
const MinWebhookSecretBytes = 16

// NewWebhooks returns a verifier; the secret is used as it is, byte by byte.
func NewWebhooks(secret []byte) (*Webhooks, error) {
	if len(secret) < MinWebhookSecretBytes {
		return nil, fmt.Errorf("auth: the payment secret has %d bytes, at least %d are needed", len(secret), MinWebhookSecretBytes)
	}
	hook, err := standardwebhooks.NewWebhookRaw(secret)
	if err != nil {
		return nil, fmt.Errorf("auth: payment secret: %w", err)
	}
	return &Webhooks{hook}, nil
}

// Verify checks a callback's signature and age, or returns ErrUnauthenticated.
func (w *Webhooks) Verify(id, timestamp, signature string, body []byte) error {
	h := http.Header{}
	h.Set(standardwebhooks.HeaderWebhookID, id)
	h.Set(standardwebhooks.HeaderWebhookTimestamp, timestamp)
	h.Set(standardwebhooks.HeaderWebhookSignature, signature)
	if err := w.hook.Verify(body, h); err != nil {
		return fmt.Errorf("%w: callback signature: %w", ErrUnauthenticated, err)
	}
	return nil
}

// Sign makes the signature header of a callback: what the payment service does, for tests and examples.
func (w *Webhooks) Sign(id string, at time.Time, body []byte) (string, error) {
	s, err := w.hook.Sign(id, at, body)
	if err != nil {
		return "", fmt.Errorf("sign callback: %w", err)
	}
	return s, nil
}
