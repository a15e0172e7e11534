package style

import (
	"go/ast"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rulesDoc holds the table of the rules R1 to R18: what each says, where it lives, which tests name it.
const rulesDoc = "docs/ARCHITECTURE.md"

// lastRule is the number of the last rule.
const lastRule = 18

// Each rule is in the table once; its place in the code is a file that names it; each test of its row exists and names it.
func TestRulesTable(t *testing.T) {
	t.Parallel()
	id := regexp.MustCompile(`^R(\d{1,2})$`)
	x := ruleIndex{tests: map[string]string{}, suites: map[string]string{}, files: map[string]string{}}
	x.read(t)
	seen := map[int]bool{}
	for _, e := range rowsOf(readFile(t, rulesDoc), id) {
		n, err := strconv.Atoi(e.id[1:])
		if err != nil || n < 1 || n > lastRule || seen[n] {
			t.Errorf("%s: row %s is there twice or is no rule", rulesDoc, e.id)
		}
		seen[n] = true
		for _, problem := range x.check(e) {
			t.Errorf("%s: %s", rulesDoc, problem)
		}
	}
	for n := 1; n <= lastRule; n++ {
		if !seen[n] {
			t.Errorf("%s leaves out R%d", rulesDoc, n)
		}
	}
}

// ruleIndex holds the texts in which a rule may be named.
type ruleIndex struct {
	tests  map[string]string // comment and body of each Test… function
	suites map[string]string // text of each conformance suite
	files  map[string]string // every other file
}

func (x ruleIndex) read(t *testing.T) {
	t.Helper()
	for _, s := range readSources(t) {
		if strings.HasSuffix(s.dir, "test") {
			x.suites[s.path] = s.text
		}
		if !s.test {
			x.files[s.path] = s.text
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			from := f.Pos()
			if f.Doc != nil {
				from = f.Doc.Pos()
			}
			x.tests[f.Name.Name] += s.text[s.fset.Position(from).Offset:s.fset.Position(f.End()).Offset]
		}
	}
	walk(t, func(name string) {
		if strings.HasSuffix(name, ".lua") {
			x.files[name] = readFile(t, name)
		}
	})
}

// check says what is wrong with a row: | id | rule | where | tests |, with names in backticks.
func (x ruleIndex) check(e entry) (problems []string) {
	cells := strings.Split(strings.Trim(e.row, "|"), "|")
	if len(cells) != 4 {
		return []string{e.id + ": a row has four cells"}
	}
	names := regexp.MustCompile("`([^`]+)`")
	mentions := regexp.MustCompile(`(?:\b|_)` + e.id + `\b`)
	where, tests := names.FindAllStringSubmatch(cells[2], -1), names.FindAllStringSubmatch(cells[3], -1)
	if len(where) == 0 || len(tests) == 0 {
		problems = append(problems, e.id+" has no place in the code or no test")
	}
	for _, w := range where {
		if text, ok := x.files[w[1]]; !ok {
			problems = append(problems, e.id+" names the file "+w[1]+", which does not exist")
		} else if !mentions.MatchString(text) {
			problems = append(problems, e.id+" names the file "+w[1]+", which does not name the rule")
		}
	}
	functions := 0
	for _, m := range tests {
		name := m[1]
		text, ok := x.tests[name]
		switch {
		case ok && mentions.MatchString(text):
			functions++
		case ok:
			problems = append(problems, e.id+" names the test "+name+", which does not name the rule")
		case strings.HasPrefix(name, "Test"):
			problems = append(problems, e.id+" names the test "+name+", which does not exist")
		case !mentions.MatchString(name):
			problems = append(problems, e.id+" names a test of a suite that does not name the rule: "+name)
		case !x.inSuite(name):
			problems = append(problems, e.id+" names "+name+", which is in no suite")
		}
	}
	if functions == 0 {
		problems = append(problems, e.id+" has no test function of its own")
	}
	return problems
}

// inSuite reports whether a suite has a test of this name.
func (x ruleIndex) inSuite(name string) bool {
	for _, text := range x.suites {
		if strings.Contains(text, `"`+name+`"`) {
			return true
		}
	}
	return false
}

// The check itself.
func TestRuleRowCheck(t *testing.T) {
	t.Parallel()
	x := ruleIndex{
		tests:  map[string]string{"TestGood": "// R1: x\nfunc TestGood() {}", "TestOther": "// R12: x\nfunc TestOther() {}"},
		suites: map[string]string{"a/atest/x.go": `{"Grows_R1", grows}, {"R1 told", told}`},
		files:  map[string]string{"a/b.go": "// R1, R2", "a/c.lua": "-- R12"},
	}
	for row, problems := range map[string]int{
		"| R1 | rule | `a/b.go` | `TestGood`; suites `Grows_R1`, `R1 told` |": 0,
		"| R1 | rule | `a/c.lua` | `TestGood` |":                              1, // R12 is not R1
		"| R1 | rule | `a/gone.go` | `TestGood` |":                            1,
		"| R1 | rule | | `TestGood` |":                                        1,
		"| R1 | rule | `a/b.go` | `TestGone`, `TestGood` |":                   1,
		"| R1 | rule | `a/b.go` | `TestOther`, `TestGood` |":                  1,
		"| R1 | rule | `a/b.go` | `Shrinks_R1`, `TestGood` |":                 1,
		"| R1 | rule | `a/b.go` | `Grows`, `TestGood` |":                      1,
		"| R1 | rule | `a/b.go` | `Grows_R1` |":                               1, // a suite alone
		"| R1 | rule | `a/b.go` | |":                                          2,
	} {
		if got := x.check(entry{id: "R1", row: row}); len(got) != problems {
			t.Errorf("%s: %q, want %d problems", row, got, problems)
		}
	}
}

// R3: a gateway and a reconciler never decide a reservation and never release one: they enqueue it again. What moves the
// units of orders that ended, and what an audit settles because it is decided, is the reconciler's.
func TestOnlyTheConsumerDecides(t *testing.T) {
	t.Parallel()
	forbidden := map[string][]string{
		"gateway":    {"Commit", "Refuse", "Settle", "Return", "Promote"},
		"pusher":     {"Commit", "Refuse", "Settle", "Return", "Promote", "Reserve"},
		"reconciler": {"Commit", "Refuse", "Reserve"},
	}
	decides := false
	for _, s := range readSources(t) {
		if s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			name := sel.Sel.Name
			decides = decides || s.dir == "consumer" && name == "Commit"
			if slices.Contains(forbidden[s.dir], name) || s.dir == "reconciler" && name == "Settle" && s.path != "reconciler/audit.go" {
				t.Errorf("%s calls %s", s.fset.Position(call.Pos()), name)
			}
			return true
		})
	}
	if !decides {
		t.Error("the consumer commits nothing: this test looks at the wrong names")
	}
}
