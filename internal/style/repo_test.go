package style

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// root is the repository, seen from the folder in which the tests of this package run.
const root = "../.."

// module is the import path of the repository's root package.
const module = "seckill"

// source is one Go file.
type source struct {
	path string // slash-separated, below the repository
	dir  string // its folder; "." is the repository itself
	test bool
	text string
	file *ast.File
	fset *token.FileSet
}

// lines is how many lines the node takes, its own braces included and its doc comment left out.
func (s *source) lines(n ast.Node) int {
	return s.fset.Position(n.End()).Line - s.fset.Position(n.Pos()).Line + 1
}

// readSources parses every Go file of the repository.
func readSources(t *testing.T) []*source {
	t.Helper()
	var sources []*source
	walk(t, func(name string) {
		if !strings.HasSuffix(name, ".go") {
			return
		}
		text := readFile(t, name)
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("parse: %v", err)
			return
		}
		sources = append(sources, &source{
			path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
			text: text, file: file, fset: fset,
		})
	})
	if len(sources) == 0 {
		t.Fatal("no Go file found: the tests look at the wrong folder")
	}
	return sources
}

// walk calls visit with every file of the repository, but for test data and what is not committed.
func walk(t *testing.T, visit func(name string)) {
	t.Helper()
	skip := map[string]bool{"testdata": true, "vendor": true, "node_modules": true, "bin": true, "data": true}
	err := filepath.WalkDir(filepath.FromSlash(root), func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(filepath.FromSlash(root), name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel != "." && (skip[d.Name()] || strings.HasPrefix(d.Name(), ".")) {
				return fs.SkipDir
			}
			return nil
		}
		visit(filepath.ToSlash(rel))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// readFile reads a file of the repository.
func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.FromSlash(root), filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// below reports whether dir is parent or lies in it.
func below(dir, parent string) bool {
	return dir == parent || strings.HasPrefix(dir, parent+"/")
}
