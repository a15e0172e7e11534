package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type exported struct {
	Gateway struct {
		Addr string
		Bounds
	}
	Auth     struct{ JWTSecret string }
	Database struct{ DSN string }
}

// Bounds stands for the bounds of a role, embedded in its section.
type Bounds struct {
	MaxBodyBytes int
	ReadTimeout  time.Duration
	Origins      []string
	PushURL      string
	Hook         func()
}

func yamlFile(t *testing.T, body string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(p, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// Defaults < YAML < environment < flags.
func TestLayers(t *testing.T) {
	t.Parallel()
	c := &exported{}
	c.Gateway.Addr, c.Gateway.MaxBodyBytes, c.Gateway.ReadTimeout = "a", 1, time.Second
	p := yamlFile(t, "gateway:\n  addr: b\n  maxBodyBytes: 2\n  origins: [x, y]\n  readTimeout: 3s\n")
	err := Load(c, p, []string{"SECKILL_GATEWAY_MAX_BODY_BYTES=3", "SECKILL_GATEWAY_PUSHURL=ws://h", "SECKILL_TEST_REDIS=z", "PATH=/"},
		[]string{"gateway.maxBodyBytes=4", "auth.jwtSecret=s3cret"})
	if err != nil {
		t.Fatal(err)
	}
	g := c.Gateway
	if g.Addr != "b" || g.MaxBodyBytes != 4 || g.ReadTimeout != 3*time.Second || len(g.Origins) != 2 || g.PushURL != "ws://h" || c.Auth.JWTSecret != "s3cret" {
		t.Errorf("got %+v", c)
	}
}

// An unknown key is an error wherever it stands, and so is a value of the wrong form.
func TestMistakes(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]func() error{
		"yaml key":  func() error { return Load(&exported{}, yamlFile(t, "gateway:\n  adr: b\n"), nil, nil) },
		"yaml top":  func() error { return Load(&exported{}, yamlFile(t, "gatway: {}\nx: 1\n"), nil, nil) },
		"yaml form": func() error { return Load(&exported{}, yamlFile(t, "gateway: [\n"), nil, nil) },
		"no file":   func() error { return Load(&exported{}, "/does/not/exist.yaml", nil, nil) },
		"env key":   func() error { return Load(&exported{}, "", []string{"SECKILL_GATEWAY_ADR=1"}, nil) },
		"flag key":  func() error { return Load(&exported{}, "", nil, []string{"x=1"}) },
		"number":    func() error { return Load(&exported{}, "", nil, []string{"gateway.maxBodyBytes=many"}) },
		"duration":  func() error { return Load(&exported{}, "", nil, []string{"gateway.readTimeout=soon"}) },
		"below 0":   func() error { return Load(&exported{}, "", nil, []string{"gateway.maxBodyBytes=-1"}) },
		"past":      func() error { return Load(&exported{}, yamlFile(t, "gateway:\n  readTimeout: -1s\n"), nil, nil) },
	} {
		if err := try(); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Secrets never reach the printed configuration.
func TestPrintMasksSecrets(t *testing.T) {
	t.Parallel()
	c := &exported{}
	c.Auth.JWTSecret, c.Database.DSN, c.Gateway.Addr = "hunter2", "root:hunter2@tcp(h)/", "h:1"
	out := Print(c)
	if strings.Contains(out, "hunter2") || !strings.Contains(out, `gateway.addr: "h:1"`) || !strings.Contains(out, "auth.jwtSecret: ********") {
		t.Errorf("printed:\n%s", out)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"MaxBodyBytes": "maxBodyBytes", "PushURL": "pushURL", "DSN": "dsn", "ReplicaDSN": "replicaDSN", "JWTSecret": "jwtSecret", "A": "a"} {
		if got := lowerCamel(in); got != want {
			t.Errorf("lowerCamel(%s) = %s, want %s", in, got, want)
		}
	}
}
