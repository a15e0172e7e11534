package static

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// files are the embedded files with one of the extensions.
func files(t *testing.T, extensions ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := fs.WalkDir(Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !slices.Contains(extensions, path.Ext(name)) {
			return err
		}
		text, err := fs.ReadFile(Files, name)
		out[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What a page or a module refers to is embedded.
func TestReferencesAreEmbedded(t *testing.T) {
	t.Parallel()
	all := files(t, ".js", ".css", ".html")
	refers := regexp.MustCompile(`(?m)(?:^import .*from |^\} from |import\(|src=|rel="stylesheet" href=)['"]([^'"]+)['"]`)
	count := 0
	for name, text := range all {
		for _, m := range refers.FindAllStringSubmatch(text, -1) {
			count++
			if _, ok := all[path.Join(path.Dir(name), m[1])]; !ok {
				t.Errorf("%s refers to %s, which is not embedded", name, m[1])
			}
		}
	}
	if count < 20 {
		t.Errorf("only %d references found: the expression misses them", count)
	}
}

// What is embedded is served, so that it holds nothing but pages and modules: no test, and nothing that only tests need.
func TestTestsAreNotEmbedded(t *testing.T) {
	t.Parallel()
	err := fs.WalkDir(Files, ".", func(name string, d fs.DirEntry, err error) error {
		if known := slices.Contains([]string{".js", ".css", ".html"}, path.Ext(name)); err == nil && (strings.Contains(name, "test") || !d.IsDir() && !known) {
			t.Errorf("%s is embedded", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// FS-091: texts become text nodes, and nothing in the pages needs the content policy to be weaker.
func TestNoMarkupFromText(t *testing.T) {
	t.Parallel()
	for name, text := range files(t, ".js", ".html") {
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "cssText", " style=", " onclick=", " onload=", "<style"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %q", name, bad)
			}
		}
	}
}

// Both languages have the same texts with the same placeholders, and every text that is asked for by name is there.
func TestTexts(t *testing.T) {
	t.Parallel()
	all := files(t, ".js", ".html")
	en, zh := texts(all["text-en.js"]), texts(all["text-zh.js"])
	if len(en) < 100 {
		t.Fatalf("only %d texts found", len(en))
	}
	placeholder := regexp.MustCompile(`\{\w+\}`)
	for key, text := range en {
		other, ok := zh[key]
		want, got := placeholder.FindAllString(text, -1), placeholder.FindAllString(other, -1)
		slices.Sort(want)
		slices.Sort(got)
		if !ok || !slices.Equal(want, got) {
			t.Errorf("%s: %q in English, %q in Chinese", key, text, other)
		}
	}
	for key := range zh {
		if _, ok := en[key]; !ok {
			t.Errorf("%s is Chinese only", key)
		}
	}
	asked := regexp.MustCompile(`(?:\bt\('|data-(?:text|label|hint)="|dataset: \{ (?:text|label): ')([a-zA-Z_.-]+)['"]`)
	for name, text := range all {
		for _, m := range asked.FindAllStringSubmatch(text, -1) {
			if _, ok := en[m[1]]; !ok {
				t.Errorf("%s asks for the text %q", name, m[1])
			}
		}
	}
}

// texts reads the entries of a text module.
func texts(module string) map[string]string {
	out := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^  '([^']+)': '(.*)',$`).FindAllStringSubmatch(module, -1) {
		out[m[1]] = m[2]
	}
	return out
}

// The style of the repository, for the modules too.
func TestModulesAreShort(t *testing.T) {
	t.Parallel()
	for name, text := range files(t, ".js") {
		if n := strings.Count(text, "\n"); n > 400 {
			t.Errorf("%s has %d lines, at most 400", name, n)
		}
	}
}
