package static

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"seckill/internal/testenv"
	"seckill/internal/testenv/browser"
)

// verdict is how one JavaScript test ended.
type verdict struct {
	Name  string `json:"name"`
	Error string `json:"error"` // "" when it passed
}

// A platform runs JavaScript tests. What it starts ends with the test, which is skipped when the platform is not there.
type platform struct {
	name  string
	start func(t *testing.T) runFile
}

// runFile runs a file of tests, by its path below this folder, each within the limit where the platform has one. An error
// means that not all of them were run.
type runFile func(file string, limit time.Duration) ([]verdict, error)

func platforms() []platform { return []platform{{"node", startNode}, {"chromium", startChromium}} }

// The client's own tests, with doubles of the server, sockets and the clock (S29, S33, FS-081, FS-084 to FS-093), the same
// in Node and in Chromium.
func TestClient(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("test/*.test.mjs")
	if err != nil || len(files) < 5 {
		t.Fatalf("tests: %v, %v", files, err)
	}
	ran := map[string][][]string{} // names of the tests, by file, by platform
	for _, p := range platforms() {
		t.Run(p.name, func(t *testing.T) {
			run := p.start(t)
			for _, file := range files {
				t.Run(path.Base(file), func(t *testing.T) {
					verdicts, err := run(file, 30*time.Second)
					if err != nil || len(verdicts) == 0 {
						t.Errorf("%d tests were run: %v", len(verdicts), err)
					}
					ran[p.name] = append(ran[p.name], report(t, verdicts))
				})
			}
		})
	}
	if node, chromium := ran["node"], ran["chromium"]; node != nil && chromium != nil && !slices.EqualFunc(node, chromium, slices.Equal) {
		t.Errorf("Node ran %q,\nChromium ran %q", node, chromium)
	}
}

// A test that fails is seen to fail on each platform, in whatever way it does, and so is a file that cannot be run.
func TestClientFaultsAreNoticed(t *testing.T) {
	t.Parallel()
	for _, p := range platforms() {
		t.Run(p.name, func(t *testing.T) {
			run := p.start(t)
			verdicts, err := run("test/faults.mjs", 2*time.Second)
			if err != nil || len(verdicts) != 11 {
				t.Errorf("%d tests were run: %v", len(verdicts), err)
			}
			for _, v := range verdicts {
				if strings.HasPrefix(v.Name, "fails: ") != (v.Error != "") {
					t.Errorf("%s: error %q", v.Name, v.Error)
				}
			}
			if verdicts, err := run("test/none.mjs", time.Second); err == nil {
				t.Errorf("a file that is not there ran %v", verdicts)
			}
		})
	}
}

// report makes each verdict one of a subtest, and returns their names.
func report(t *testing.T, verdicts []verdict) (names []string) {
	for _, v := range verdicts {
		names = append(names, v.Name)
		t.Run(v.Name, func(t *testing.T) {
			if v.Error != "" {
				t.Error(v.Error)
			}
		})
	}
	return names
}

// startNode runs a file in a process of its own.
func startNode(t *testing.T) runFile {
	node, err := exec.LookPath("node")
	if err != nil && testenv.Required(testenv.NameNode) {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip("needs Node 20 or later in PATH")
	}
	return func(file string, _ time.Duration) ([]verdict, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, node, "--test-reporter=./test/report.mjs", file)
		cmd.Stderr = &stderr
		out, failed := cmd.Output()
		var verdicts []verdict
		bad := false
		for lines := json.NewDecoder(bytes.NewReader(out)); ; {
			var v verdict
			if err := lines.Decode(&v); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return verdicts, fmt.Errorf("%w in the output %q", err, out)
			}
			verdicts = append(verdicts, v)
			bad = bad || v.Error != ""
		}
		if (failed != nil) != bad {
			return verdicts, fmt.Errorf("node ended with %d, which the tests' results do not explain\n%s", cmd.ProcessState.ExitCode(), &stderr)
		}
		return verdicts, nil
	}
}

// startChromium runs a file in a page of its own.
func startChromium(t *testing.T) runFile {
	if testing.Short() {
		t.Skip("not in the short run")
	}
	chromium := browser.Start(t)
	server := httptest.NewServer(http.FileServer(http.Dir(".")))
	t.Cleanup(server.Close)
	return func(file string, limit time.Duration) ([]verdict, error) {
		tab, closeTab := chromedp.NewContext(chromium, chromedp.WithNewBrowserContext())
		defer closeTab()
		if err := chromedp.Do(tab); err != nil { // the first call opens it, and must not be ended by a deadline
			return nil, err
		}
		ctx, cancel := context.WithTimeout(tab, 2*time.Minute)
		defer cancel()
		if err := chromedp.Do(ctx, chromedp.Navigate(server.URL+"/test/browser/page.html")); err != nil {
			return nil, err
		}
		return chromedp.Run(ctx, chromedp.Evaluate[[]verdict](
			fmt.Sprintf(`import("node:test").then(({ run }) => run(%q, %d))`, "/"+file, limit.Milliseconds()), chromedp.EvalAwaitPromise))
	}
}
