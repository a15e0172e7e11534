// Package configs holds examples of the configuration and of a sale. It owns no code; these tests keep the examples
// loadable.
package configs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v3"

	"seckill/gateway"
	"seckill/internal/app"
	"seckill/internal/config"
)

// load reads a file as a role does, over the defaults.
func load(t *testing.T, file string, env ...string) app.Config {
	t.Helper()
	cfg := app.Defaults()
	if err := config.Load(&cfg, file, env, nil); err != nil {
		t.Fatal(err)
	}
	return cfg
}

// Every example loads: an unknown key, a wrong form or an empty section is an error. None of them holds a secret.
func TestExamplesLoad(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"embedded.yaml", "host.yaml", "cluster.yaml"} {
		cfg := load(t, file)
		a := cfg.Auth
		if a.JWTSecret+a.RequestTokenSecret+a.AdminToken+cfg.Redis.Password+cfg.Database.DSN+cfg.Database.ReplicaDSN != "" {
			t.Errorf("%s holds a secret", file)
		}
		if a.DemoLogin {
			t.Errorf("%s lets anyone sign in as anyone", file)
		}
	}
}

// With the secrets given, each example is a configuration that every role may start with.
func TestExamplesAreComplete(t *testing.T) {
	t.Parallel()
	secrets := []string{
		"SECKILL_DATABASE_DSN=u:p@tcp(h:3306)/seckill", "SECKILL_AUTH_REQUEST_TOKEN_SECRET=sixteen bytes or more",
		"SECKILL_AUTH_ADMIN_TOKEN=x",
	}
	for _, role := range app.AllRoles() {
		for _, file := range []string{"host.yaml", "cluster.yaml"} {
			if _, err := app.New(load(t, file, secrets...), []string{role}, nil); err != nil {
				t.Errorf("%s, %s: %v", file, role, err)
			}
		}
	}
	if _, err := app.New(load(t, "embedded.yaml"), app.AllRoles(), nil); err != nil {
		t.Errorf("embedded.yaml: %v", err)
	}
}

// S10: the cluster example keeps an acknowledged order through the loss of one broker.
func TestClusterIsReplicated(t *testing.T) {
	t.Parallel()
	k := load(t, "cluster.yaml").Kafka
	if k.Replication < 3 || k.MinInSyncReplicas < 2 || k.MinInSyncReplicas >= k.Replication || k.Partitions < 3 {
		t.Errorf("replication %d, min in-sync %d, partitions %d", k.Replication, k.MinInSyncReplicas, k.Partitions)
	}
}

// The environment that compose.yaml gives the roles names keys that exist, and makes host.yaml complete.
func TestComposeEnvironment(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Role struct {
			Environment map[string]string `yaml:"environment"`
		} `yaml:"x-role"`
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	defaults := regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`)
	var env []string
	for name, value := range doc.Role.Environment {
		env = append(env, name+"="+defaults.ReplaceAllString(value, "$1"))
	}
	cfg := load(t, "host.yaml", env...)
	if len(env) < 6 || cfg.Redis.Addrs[0] != "redis:6379" || !strings.Contains(cfg.Database.DSN, "@tcp(db:3306)/") {
		t.Errorf("environment %v does not reach the configuration", env)
	}
	for _, role := range app.AllRoles() {
		if _, err := app.New(cfg, []string{role}, nil); err != nil {
			t.Errorf("%s: %v", role, err)
		}
	}
}

// S34: the example of a sale is one that the admin API takes.
func TestSaleExample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("sale.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	a, err := gateway.ParseActivity(body, nil)
	if err != nil || len(a.Items) != 2 || a.Items[0].Price.String() != "1999" || a.WaitlistUntil.Sub(a.EndsAt).Minutes() != 30 {
		t.Errorf("sale.yaml: %+v, %v", a, err)
	}
}

// The README's example and the variables it names are real.
func TestReadmeConfiguration(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```yaml\n")
	example, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("README.md has no YAML example")
	}
	file := filepath.Join(t.TempDir(), "readme.yaml")
	if err := os.WriteFile(file, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := load(t, file)
	for _, role := range app.AllRoles() {
		if _, err := app.New(cfg, []string{role}, nil); err != nil {
			t.Errorf("the example, %s: %v", role, err)
		}
	}
	names := regexp.MustCompile("`(SECKILL_[A-Z_]+)`").FindAllStringSubmatch(string(text), -1)
	if len(names) < 10 {
		t.Errorf("only %d variables found", len(names))
	}
	for _, name := range names {
		load(t, file, name[1]+"=x")
	}
}
