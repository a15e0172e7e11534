package e2e

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"seckill/bench"
	"seckill/internal/testenv"
)

// The bench measures the pusher and the plain floor in the same way and loses nothing. Its figures are not judged here.
func TestBenchPush(t *testing.T) {
	redis := testenv.OwnRedis(t, testenv.RedisOptions{})
	floor := t.TempDir() + "/floor"
	if out, err := exec.Command("go", "build", "-o", floor, "seckill/bench/floor").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, more := range map[string][]string{"pusher": {"--restart", "--live", "1s"}, "floor": {"--floor", floor}} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(binary, append([]string{
				"bench", "push", "--redis", redis.Addr, "--sockets", "200", "--processes", "2", "--idle", "1s", "--rate", "500", "--for", "1s",
			}, more...)...)
			var said strings.Builder
			cmd.Stderr = &said
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, said.String())
			}
			var r bench.PushReport
			if err := json.Unmarshal(out, &r); err != nil {
				t.Fatal(err)
			}
			if r.Lost != 0 || r.SocketsLost != 0 || r.Published < 500 || r.AtRate.P50 <= 0 || r.AtRate.P99 < r.AtRate.P50 || r.ConnectsPerSecond <= 0 || r.MostPerSecond <= 0 {
				t.Errorf("%+v\n%s", r, said.String())
			}
			if name == "pusher" && (r.BackAfterRestart <= 0 || r.Live == nil || r.Live.PerViewer < 1) {
				t.Errorf("no restart, or no live state: %+v\n%s", r, said.String())
			}
		})
	}
}
