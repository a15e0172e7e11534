package style

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A family is the drivers of one kind of server, by the start of their import paths.
type family struct {
	name     string
	prefixes []string
}

func families() []family {
	return []family{
		{"redis", []string{"github.com/redis/"}},
		{"kafka", []string{"github.com/segmentio/kafka-go", "github.com/twmb/"}},
		{"sql", []string{"database/sql", "github.com/go-sql-driver/", "modernc.org/", "github.com/pressly/goose"}},
		{"jwt", []string{"github.com/golang-jwt/", "github.com/MicahParks/"}},
	}
}

// A rule says what a package (and the packages below it) may import, tests excepted.
type rule struct {
	dir string
	// ours are the folders of this repository that it may import, besides its own.
	ours []string
	// drivers is the one family it may use; "" for none.
	drivers string
	// onlyStd allows the standard library and pure only.
	onlyStd bool
}

// pure are small libraries without input or output, open even to packages that otherwise know the standard library only.
func pure() []string {
	return []string{"github.com/bwmarrin/snowflake", "github.com/shopspring/decimal", "github.com/cespare/xxhash"}
}

// rules is the import rule of the design. Only internal/app knows everything.
func rules() []rule {
	domain := []string{"internal/sale"}
	return []rule{
		{dir: "internal/sale", onlyStd: true},
		{dir: "hub", onlyStd: true},
		{dir: "static"},
		{dir: "configs"},

		{dir: "internal/stock", ours: domain, drivers: "redis"},
		{dir: "internal/push", ours: domain, drivers: "redis"},
		{dir: "internal/queue", ours: domain, drivers: "kafka"},
		{dir: "internal/ledger", ours: domain, drivers: "sql"},
		{dir: "internal/auth", ours: domain, drivers: "jwt"},

		{dir: "gateway", ours: []string{"internal/sale", "static"}},
		{dir: "pusher", ours: []string{"internal/sale", "hub"}},
		{dir: "consumer", ours: domain},
		{dir: "reconciler", ours: domain},
	}
}

// Each package knows only what it needs: adapters never one another, roles never adapters or one another.
func TestImportRule(t *testing.T) {
	t.Parallel()
	for _, s := range readSources(t) {
		if s.test {
			continue
		}
		for _, r := range rules() {
			if !below(s.dir, r.dir) {
				continue
			}
			for _, path := range importsOf(t, s) {
				if why := r.forbids(path); why != "" {
					t.Errorf("%s imports %s: %s", s.path, path, why)
				}
			}
		}
	}
}

// forbids says why the rule does not allow the import, or "".
func (r rule) forbids(path string) string {
	if dir, ok := ourDir(path); ok {
		if below(dir, r.dir) || slices.ContainsFunc(r.ours, func(o string) bool { return below(dir, o) }) {
			return ""
		}
		return r.dir + " may import of ours only " + strings.Join(append([]string{"itself"}, r.ours...), ", ")
	}
	for _, f := range families() {
		if f.name != r.drivers && hasPrefix(path, f.prefixes) {
			return r.dir + " has no business with " + f.name
		}
	}
	thirdParty := strings.Contains(strings.Split(path, "/")[0], ".")
	if r.onlyStd && thirdParty && !hasPrefix(path, pure()) {
		return r.dir + " imports the standard library only"
	}
	return ""
}

// The servers that tests run on, embedded or real, stay out of the product's packages.
func TestHelpersStayOutOfTheProduct(t *testing.T) {
	t.Parallel()
	importers := map[string][]string{ // who may import it outside tests
		"internal/embedded": {"internal/app", "internal/embedded"},
		"internal/testenv":  {"internal/testenv"},
		"internal/app":      {"internal/app", "internal/cli", "internal/e2e"},
		"internal/cli":      {"."},
		"internal/contract": {},
		"internal/style":    {},
	}
	for _, s := range readSources(t) {
		if s.test {
			continue
		}
		for _, path := range importsOf(t, s) {
			dir, ok := ourDir(path)
			if !ok {
				continue
			}
			for guarded, allowed := range importers {
				may := slices.ContainsFunc(allowed, func(a string) bool {
					return s.dir == a || a != "." && below(s.dir, a)
				})
				if below(dir, guarded) && !may {
					t.Errorf("%s imports %s, which only %v may", s.path, path, allowed)
				}
			}
		}
	}
}

// The rule itself: a table that allowed everything would pass every repository.
func TestRuleForbids(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		dir, path string
		allowed   bool
	}{
		{"hub", "sync", true},
		{"hub", "github.com/cespare/xxhash/v2", true},
		{"hub", "github.com/redis/go-redis/v9", false},
		{"hub", "seckill/internal/sale", false},
		{"internal/stock", "seckill/internal/sale", true},
		{"internal/stock", "github.com/redis/go-redis/v9", true},
		{"internal/stock", "seckill/internal/queue", false},
		{"internal/stock", "database/sql", false},
		{"internal/stock", "seckill/gateway", false},
		{"gateway", "seckill/static", true},
		{"gateway", "seckill/internal/stock", false},
		{"gateway", "seckill/hub", false},
		{"consumer", "github.com/segmentio/kafka-go", false},
		{"pusher", "seckill/hub", true},
	} {
		i := slices.IndexFunc(rules(), func(r rule) bool { return r.dir == tc.dir })
		if got := rules()[i].forbids(tc.path) == ""; got != tc.allowed {
			t.Errorf("%s importing %s: allowed = %v, want %v", tc.dir, tc.path, got, tc.allowed)
		}
	}
}

// importsOf lists the import paths of a file.
func importsOf(t *testing.T, s *source) []string {
	t.Helper()
	var paths []string
	for _, spec := range s.file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// ourDir is the folder of an import path of this repository.
func ourDir(path string) (string, bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

func hasPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}
