package style

import (
	"go/ast"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// entry is one row of a table in docs/: `| FS-001 | … | state | test |`.
type entry struct {
	id   string
	row  string
	done bool // the row's state says tested
}

// rowsOf reads the table rows whose first cell is an id.
func rowsOf(text string, id *regexp.Regexp) []entry {
	tested := regexp.MustCompile(`(?i)^tested\b`)
	var entries []entry
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) < 2 || !id.MatchString(strings.TrimSpace(cells[0])) {
			continue
		}
		e := entry{id: strings.TrimSpace(cells[0]), row: line}
		for _, c := range cells[1:] {
			e.done = e.done || tested.MatchString(strings.TrimSpace(c))
		}
		entries = append(entries, e)
	}
	return entries
}

// Each failure case of the field is listed once, and a case that is said to be tested is.
func TestCasesTable(t *testing.T) {
	t.Parallel()
	checkTable(t, "docs/CASES.md", regexp.MustCompile(`^FS-(\d{3})$`))
}

// The same for what the product must do.
func TestRequirementsTable(t *testing.T) {
	t.Parallel()
	checkTable(t, "docs/REQUIREMENTS.md", regexp.MustCompile(`^S(\d{1,2})$`))
}

// checkTable checks one document: ids are there once and without a gap, the tests it names exist, and every id that is
// tested stands in a test file.
func checkTable(t *testing.T, name string, id *regexp.Regexp) {
	t.Helper()
	entries := rowsOf(readFile(t, name), id)
	if len(entries) == 0 {
		t.Fatalf("%s has no row", name)
	}
	tests := readTests(t)
	seen := map[int]bool{}
	highest := 0
	for _, e := range entries {
		n, err := strconv.Atoi(id.FindStringSubmatch(e.id)[1])
		if err != nil {
			t.Fatal(err)
		}
		if seen[n] {
			t.Errorf("%s lists %s twice", name, e.id)
		}
		seen[n], highest = true, max(highest, n)
		for _, problem := range tests.check(e) {
			t.Errorf("%s: %s", name, problem)
		}
	}
	for n := 1; n <= highest; n++ {
		if !seen[n] {
			t.Errorf("%s leaves out number %d", name, n)
		}
	}
}

// testIndex is what the test files of the repository hold.
type testIndex struct {
	functions map[string]bool // Test…, Fuzz…, Benchmark…, Example…
	ids       map[string]bool // requirement and case ids that stand anywhere in a test file
}

// readTests reads Go and JavaScript tests. The tests of this package are left out: their examples are no tests of a case.
func readTests(t *testing.T) testIndex {
	t.Helper()
	index := testIndex{functions: map[string]bool{}, ids: map[string]bool{}}
	for _, s := range readSources(t) {
		if !s.test || s.dir == "internal/style" {
			continue
		}
		index.addIDs(s.text)
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				index.functions[f.Name.Name] = true
			}
		}
	}
	walk(t, func(name string) {
		if strings.HasSuffix(name, ".test.js") || strings.HasSuffix(name, ".test.mjs") {
			index.addIDs(readFile(t, name))
		}
	})
	return index
}

// addIDs notes the ids of a text. A case may stand in the name of a function, where no dash can be: FS001, FS_001.
func (x testIndex) addIDs(text string) {
	for _, m := range regexp.MustCompile(`FS[-_]?(\d{3})`).FindAllStringSubmatch(text, -1) {
		x.ids["FS-"+m[1]] = true
	}
	for _, m := range regexp.MustCompile(`\bS\d{1,2}\b|_S\d{1,2}`).FindAllString(text, -1) {
		x.ids[strings.TrimPrefix(m, "_")] = true
	}
}

// check says what is wrong with a row.
func (x testIndex) check(e entry) []string {
	var problems []string
	for _, name := range regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark|Example)[A-Z0-9_]\w*`).FindAllString(e.row, -1) {
		if !x.functions[name] {
			problems = append(problems, e.id+" names the test "+name+", which does not exist")
		}
	}
	if e.done && !x.ids[e.id] {
		problems = append(problems, e.id+" is said to be tested, but no test file names it")
	}
	return problems
}

// The check itself: it must find a wrong row, and leave a right one alone.
func TestRowCheck(t *testing.T) {
	t.Parallel()
	x := testIndex{functions: map[string]bool{"TestGood": true}, ids: map[string]bool{}}
	x.addIDs("// FS-001, S12\nfunc TestFS003_x(")
	for _, tc := range []struct {
		row      string
		problems int
	}{
		{"| FS-001 | text | tested | `TestGood` in gateway |", 0},
		{"| FS-001 | text | tested | TestGood/sub, TestGone |", 1},
		{"| FS-002 | text | tested | TestGood |", 1},
		{"| FS-002 | text | open | |", 0},
		{"| FS-003 | a Test of something | tested | |", 0},
		{"| S12 | text | Tested | |", 0},
		{"| S1 | text | tested | |", 1},
	} {
		entries := rowsOf(tc.row+"\n| other | row |\n", regexp.MustCompile(`^(FS-\d{3}|S\d+)$`))
		if len(entries) != 1 {
			t.Fatalf("%s: %d rows", tc.row, len(entries))
		}
		if got := x.check(entries[0]); len(got) != tc.problems {
			t.Errorf("%s: %q, want %d problems", tc.row, got, tc.problems)
		}
	}
}
