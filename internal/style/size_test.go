package style

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

const (
	maxFileLines     = 400
	maxFunctionLines = 70
)

// A file is read in one sitting and a function on one screen. The wiring in internal/app is one long list by nature.
func TestFilesAndFunctionsAreShort(t *testing.T) {
	t.Parallel()
	for _, s := range readSources(t) {
		if s.test {
			continue
		}
		if n := strings.Count(s.text, "\n"); n > maxFileLines {
			t.Errorf("%s has %d lines, at most %d", s.path, n, maxFileLines)
		}
		if below(s.dir, "internal/app") {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && s.lines(f) > maxFunctionLines {
				t.Errorf("%s: function %s has %d lines, at most %d", s.path, f.Name.Name, s.lines(f), maxFunctionLines)
			}
		}
	}
}

// Every package says what it owns and what it never does.
func TestPackagesHaveDocComments(t *testing.T) {
	t.Parallel()
	documented := map[string]bool{}
	for _, s := range readSources(t) {
		if !s.test {
			documented[s.dir] = documented[s.dir] || s.file.Doc != nil
		}
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %s has no doc comment", dir)
		}
	}
}

// State lives in values that are made and handed on, never in a package: two roles in one process, and parallel tests,
// would share it. Found are variables that are of use only when they change.
func TestNoMutablePackageState(t *testing.T) {
	t.Parallel()
	for _, s := range readSources(t) {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.VAR {
				continue
			}
			for _, spec := range decl.Specs {
				v := spec.(*ast.ValueSpec)
				if why := mutable(s, decl, v); why != "" {
					t.Errorf("%s: package variable %s %s", s.fset.Position(v.Pos()), v.Names[0].Name, why)
				}
			}
		}
	}
}

// mutable says why the variable looks like state, or "".
func mutable(s *source, decl *ast.GenDecl, v *ast.ValueSpec) string {
	if embedded(decl.Doc) || embedded(v.Doc) || v.Names[0].Name == "_" {
		return ""
	}
	if len(v.Values) == 0 {
		// A value set by the linker is a plain string.
		if typ, ok := v.Type.(*ast.Ident); ok && typ.Name == "string" && s.file.Name.Name == "main" {
			return ""
		}
		return "has no value"
	}
	for _, value := range v.Values {
		switch fn := called(value); fn {
		case "make", "new", "time.Now":
			return "is made with " + fn
		}
	}
	text := s.text[s.fset.Position(v.Pos()).Offset:s.fset.Position(v.End()).Offset]
	for _, kind := range []string{"sync.Mutex", "sync.RWMutex", "sync.Once", "sync.Map", "sync.Pool", "atomic."} {
		if strings.Contains(text, kind) {
			return "holds a " + kind
		}
	}
	return ""
}

// called names the function of a call, "" for anything else.
func called(e ast.Expr) string {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return ""
	}
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		return fn.Name
	case *ast.SelectorExpr:
		if pkg, ok := fn.X.(*ast.Ident); ok {
			return pkg.Name + "." + fn.Sel.Name
		}
	}
	return ""
}

// embedded reports whether the comment is a go:embed directive, which fills a variable at build time.
func embedded(doc *ast.CommentGroup) bool {
	if doc == nil {
		return false
	}
	for _, c := range doc.List {
		if strings.HasPrefix(c.Text, "//go:embed ") {
			return true
		}
	}
	return false
}
