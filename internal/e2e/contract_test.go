package e2e

import (
	"net/http"
	"testing"
)

func checkContract(*testing.T) func(*http.Request, int, http.Header, []byte) { return nil }
