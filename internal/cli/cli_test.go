package cli

import (
	"bytes"
	"strings"
	"testing"
)

// Wrong usage ends with status 2 and says what is wrong, also below a command that only holds others.
func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for _, try := range []struct{ args, says string }{
		{"nosuch", "unknown command"},
		{"activity nosuch", "unknown command"},
		{"user nosuch A 1", "unknown command"},
		{"dead nosuch", "unknown command"},
		{"bench pull", "unknown command"},
		{"bench push", "--redis"},
		{"bench push --redis 127.0.0.1:1 --sockets 1 --processes 2", "--sockets"},
		{"bench push --redis 127.0.0.1:1 --for=-1s", "--for"},
		{"--check-config --set pusher.loops=-1", "pusher.loops: must not be negative"},
		{"--check-config --set pusher.pingEvery=60s", "pusher.peerTimeout: must be at least twice"},
		{"--set pusher.origins=nonsense", "pusher.origins: \"nonsense\""},
	} {
		var out, errOut bytes.Buffer
		if code := Main(strings.Fields(try.args), nil, &out, &errOut); code != exitUsage || !strings.Contains(errOut.String(), try.says) {
			t.Errorf("seckill %s: status %d, %q, want %d and %q", try.args, code, errOut.String(), exitUsage, try.says)
		}
	}
	var out, errOut bytes.Buffer
	if code := Main([]string{"bench"}, nil, &out, &errOut); code != exitOK || !strings.Contains(out.String(), "Available Commands") {
		t.Errorf("seckill bench: status %d, %q", code, out.String())
	}
}
