package app_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"seckill/internal/app"
	"seckill/internal/contract"
)

// What the contract says of pushers is there, and is answered and refused as it says.
func TestPusherMatchesContract(t *testing.T) {
	t.Parallel()
	c, err := contract.Load()
	if err != nil {
		t.Fatal(err)
	}
	ops := c.Operations(true)
	if got, want := strings.Join(ops, ", "), "GET /v1/sse, GET /v1/ws"; got != want {
		t.Errorf("the contract has %s, want %s", got, want)
	}
	s := theShop
	act, bearer := s.openSale(t, item("C1", 1)), user(t, 8301)
	addr := s.app.Addr(app.RolePusher)
	header := func(bearer string) http.Header { return http.Header{"Authorization": {"Bearer " + bearer}} }
	for _, try := range []struct {
		query, bearer string
		want          int
	}{
		{"activity=" + act, "", http.StatusUnauthorized},
		{"activity=a+b", bearer, http.StatusBadRequest},
		{"activity=NOSUCH", bearer, http.StatusNotFound},
		{"u=1&activity=" + act, bearer, http.StatusForbidden},
	} {
		_, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws://"+addr+"/v1/ws?"+try.query, header(try.bearer))
		if resp == nil {
			t.Fatal(err)
		}
		held(t, c, resp, try.want)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/v1/sse?"+try.query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header(try.bearer)
		if resp, err = http.DefaultClient.Do(req); err != nil {
			t.Fatal(err)
		}
		held(t, c, resp, try.want)
	}
	conn, resp, err := websocket.DefaultDialer.DialContext(t.Context(), "ws://"+addr+"/v1/ws?activity="+act, header(bearer))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	held(t, c, resp, http.StatusSwitchingProtocols)
}

// held reads an answer and holds it against the contract.
func held(t *testing.T, c *contract.Contract, resp *http.Response, want int) {
	t.Helper()
	var body []byte
	if resp.StatusCode >= http.StatusBadRequest {
		body, _ = io.ReadAll(resp.Body)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != want {
		t.Errorf("%s was answered %d, want %d", resp.Request.URL, resp.StatusCode, want)
	}
	if err := c.Check(resp.Request, resp.StatusCode, resp.Header, body); err != nil {
		t.Error(err)
	}
}
