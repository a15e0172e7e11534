package pusher

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"seckill/internal/sale"
)

// event is one of an event stream.
type event struct{ name, id, data string }

// stream opens an event stream.
func (r *running) stream(user int64, header http.Header) (*http.Response, error) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.addr+"/v1/sse?activity="+testSale, nil)
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	} else {
		req.Header.Set("Authorization", "Bearer "+tokenOf(user, time.Hour))
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err == nil {
		r.t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

// events reads a stream as the standard says: fields, an empty line ends an event, a colon begins a comment.
func events(body io.Reader) <-chan event {
	out := make(chan event, 1000)
	go func() {
		defer close(out)
		var e event
		for lines := bufio.NewScanner(body); lines.Scan(); {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch field {
			case "event":
				e.name = value
			case "id":
				e.id = value
			case "data":
				e.data += value
			case "":
				if e.data != "" {
					out <- e
				}
				e = event{}
			}
		}
	}()
	return out
}

func nextEvent(t *testing.T, from <-chan event, name string) event {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case e, ok := <-from:
			if !ok {
				t.Fatalf("the stream ended before %q", name)
			}
			if e.name == name {
				return e
			}
		case <-timeout:
			t.Fatalf("no event %q", name)
		}
	}
}

// S28 over a stream of events: the same messages as over a socket, in the same order, with the same promises.
func TestEventStream(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.results = append(w.results, result(1, "tok", 1, sale.StatusPendingPayment))
	r := start(t, w, Config{PingEvery: 50 * time.Millisecond, PeerTimeout: 200 * time.Millisecond})
	resp, err := r.stream(1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != 200 || !strings.HasPrefix(kind, "text/event-stream") {
		t.Fatalf("%d %s", resp.StatusCode, kind)
	}
	from := events(resp.Body)
	var names []string
	for !slices.Contains(names, "synced") {
		e := <-from
		names = append(names, e.name)
		if e.name == "result" && e.id != "tok:1" {
			t.Errorf("id %q", e.id)
		}
	}
	if !slices.Equal(names, []string{"result", "activity", "synced"}) {
		t.Errorf("told %v", names)
	}
	time.Sleep(500 * time.Millisecond) // longer than a socket's peer may be silent: the reader of a stream always is
	w.publish(result(1, "tok", 3, sale.StatusPaid), result(1, "tok", 2, sale.StatusPendingPayment))
	e := nextEvent(t, from, "result")
	var f frame
	if err := json.Unmarshal([]byte(e.data), &f); err != nil || f.Status != sale.StatusPaid || e.id != "tok:3" {
		t.Errorf("%+v: %v", e, err)
	}
	resp.Body.Close()
	eventually(t, "the stream is gone", func() bool { return r.hub.Sockets() == 0 && r.ln.count() == 0 })
}

// A stream ends with an event that names the code which a socket is closed with.
func TestEventStreamEnds(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{PingEvery: 50 * time.Millisecond})
	resp, err := r.stream(0, http.Header{"Authorization": {"Bearer " + tokenOf(1, 400*time.Millisecond)}})
	if err != nil {
		t.Fatal(err)
	}
	if e := nextEvent(t, events(resp.Body), "close"); !strings.Contains(e.data, `"code":4401`) {
		t.Errorf("the session's end: %v", e)
	}
	resp, err = r.stream(2, nil)
	if err != nil {
		t.Fatal(err)
	}
	from := events(resp.Body)
	nextEvent(t, from, "synced")
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if e := nextEvent(t, from, "close"); !strings.Contains(e.data, `"code":1012`) {
		t.Errorf("a restart: %v", e)
	}
}

// A stream is refused as any request is, by a status; a page of another origin may read it when sockets may come from there.
func TestEventStreamHandshake(t *testing.T) {
	t.Parallel()
	r := start(t, newWorld(), Config{Origins: []string{"https://shop.example"}, MaxSocketsPerUser: 1})
	for name, c := range map[string]struct {
		header http.Header
		status int
		code   sale.Code
	}{
		"no token":     {http.Header{}, 401, sale.CodeUnauthenticated},
		"wrong token":  {http.Header{"Authorization": {"Bearer x"}}, 401, sale.CodeUnauthenticated},
		"wrong origin": {http.Header{"Authorization": {"Bearer " + tokenOf(1, time.Hour)}, "Origin": {"https://evil.example"}}, 403, sale.CodeForbiddenOrigin},
	} {
		resp, err := r.stream(0, c.header)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != c.status || !strings.Contains(string(body), fmt.Sprintf(`"code":%q`, c.code)) {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
	good := http.Header{"Authorization": {"Bearer " + tokenOf(1, time.Hour)}, "Origin": {"https://shop.example"}}
	resp, err := r.stream(0, good)
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Header.Get("Access-Control-Allow-Origin"); resp.StatusCode != 200 || got != "https://shop.example" {
		t.Errorf("%d, allowed %q", resp.StatusCode, got)
	}
	nextEvent(t, events(resp.Body), "synced")
	second, err := r.stream(0, good)
	if err != nil {
		t.Fatal(err)
	}
	if second.StatusCode != 429 || second.Header.Get("Retry-After") == "" {
		t.Errorf("one stream too many: %d %v", second.StatusCode, second.Header)
	}

	req, err := http.NewRequestWithContext(t.Context(), http.MethodOptions, "http://"+r.addr+"/v1/sse", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Origin", "https://shop.example")
	preflight, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer preflight.Body.Close()
	if preflight.StatusCode != 204 || preflight.Header.Get("Access-Control-Allow-Headers") != "Authorization" {
		t.Errorf("preflight: %d %v", preflight.StatusCode, preflight.Header)
	}
}
