package e2e

import (
	"net/http"
	"testing"

	"seckill/internal/contract"
)

// checkContract returns an observer that holds every answer against docs/openapi.yaml.
func checkContract(t *testing.T) func(*http.Request, int, http.Header, []byte) {
	t.Helper()
	c, err := contract.Load()
	if err != nil {
		t.Fatal(err)
	}
	return func(req *http.Request, status int, header http.Header, body []byte) {
		if err := c.Check(req, status, header, body); err != nil {
			t.Error(err)
		}
	}
}
