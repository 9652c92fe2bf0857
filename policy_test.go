// Package policy holds the project to its own rules: what may import what, what
// nothing may call, and that documents and code say the same.
package policy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rocketkeep/reconcile/reconcile"
)

const module = "github.com/rocketkeep/reconcile/"

// source is one Go file of the project.
type source struct {
	path string // with forward slashes, below the root
	pkg  string // its folder; "." is the root
	test bool   // a _test.go file
	file *ast.File
	fset *token.FileSet
}

func sources(t *testing.T) []source {
	t.Helper()
	out, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 50 {
		t.Fatalf("only %d Go files: is this the root of the module?", len(out))
	}
	return out
}

var parsed = sync.OnceValues(func() ([]source, error) {
	fset := token.NewFileSet()
	var out []source
	err := filepath.WalkDir(".", func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && p != "." && (e.Name() == "node_modules" || strings.HasPrefix(e.Name(), ".") || p == filepath.Join("testdata", "lance")) {
			return fs.SkipDir
		}
		if e.IsDir() || !strings.HasSuffix(p, ".go") {
			return nil
		}
		f, err := parser.ParseFile(fset, p, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		p = filepath.ToSlash(p)
		out = append(out, source{p, path.Dir(p), strings.HasSuffix(p, "_test.go"), f, fset})
		return nil
	})
	return out, err
})

// forTests are packages that only tests import; what they do is test code.
var forTests = []string{"internal/lancetest", "internal/servertest", "internal/harperfake", "internal/faultstore", "internal/objstore/objstoretest", "internal/objstore/memstore", "e2e", "bench", "."}

func below(pkg string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return pkg == r || r != "." && strings.HasPrefix(pkg, r+"/") })
}

func (s source) isTestCode() bool { return s.test || below(s.pkg, forTests...) }

func TestEachPackageIsDocumentedOnce(t *testing.T) {
	t.Parallel()
	docs := map[string][]string{}
	for _, s := range sources(t) {
		if strings.HasSuffix(s.file.Name.Name, "_test") {
			continue
		}
		if _, seen := docs[s.pkg]; !seen {
			docs[s.pkg] = nil
		}
		if s.file.Doc != nil && s.file.Doc.Text() != "" {
			docs[s.pkg] = append(docs[s.pkg], s.path)
		}
	}
	for pkg, files := range docs {
		if len(files) != 1 {
			t.Errorf("package %s has its package comment in %d files %v, want exactly one", pkg, len(files), files)
		}
	}
}

// mayImport says which packages of this module each part may use, itself and what
// lies below it excepted. Imports point down only: a store knows no verdict, the
// nouns know no format, a format knows no command.
var mayImport = []struct {
	part    string
	imports []string
}{
	{"lance", nil}, // a library on its own
	{"internal/objstore", nil},
	{"internal/lancestore", []string{"internal/objstore", "lance"}}, // where the two that know nothing of each other meet
	{"reconcile/mend", []string{"reconcile", "internal/objstore"}},
	{"reconcile/pass", []string{"reconcile", "reconcile/mend", "internal/objstore", "internal/ledger"}},               // what is remembered, not where
	{"reconcile/fleet", []string{"reconcile", "internal/objstore", "internal/lancestore", "lance", "lance/datafile"}}, // registries are Lance tables
	{"reconcile/tables", []string{"reconcile", "internal/objstore", "internal/lancestore", "lance", "lance/datafile"}},
	{"reconcile/wal", []string{"reconcile", "internal/objstore", "internal/ledger"}},
	{"reconcile/peers", []string{"reconcile", "internal/objstore"}}, // who is asked, not what a copy is worth
	{"reconcile/blobs/refs", []string{"internal/objstore", "internal/lancestore", "lance", "lance/datafile"}},
	{"reconcile", []string{"internal/objstore"}},
	{"report", []string{"reconcile", "internal/objstore"}},
	{"internal/hook", nil}, // what is told, not by whom
	{"internal/mancache", []string{"internal/objstore"}},
	{"internal/config", []string{"reconcile", "internal/objstore", "internal/hook"}},
	{"internal/explain", []string{"reconcile", "reconcile/fleet"}},
	{"sql", nil},
	{"internal/ledger", []string{"reconcile", "internal/objstore", "sql/migrations"}},
	{"testdata", nil},
	{"internal/metrics", []string{"reconcile", "internal/objstore", "internal/ledger"}},
	{"cmd", []string{"reconcile", "reconcile/pass", "reconcile/fleet", "reconcile/tables", "reconcile/wal", "reconcile/peers", "reconcile/mend", "reconcile/blobs", "reconcile/blobs/harper", "reconcile/blobs/refs", "report", "lance", "internal/config", "internal/hook", "internal/explain", "internal/mancache", "internal/metrics", "testdata"}},
}

func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.isTestCode() {
			continue
		}
		i := slices.IndexFunc(mayImport, func(r struct {
			part    string
			imports []string
		}) bool {
			return below(s.pkg, r.part)
		})
		if i < 0 {
			t.Errorf("%s: say in mayImport what package %s may use", s.path, s.pkg)
			continue
		}
		rule := mayImport[i]
		for _, imp := range s.file.Imports {
			full, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			rel, ours := strings.CutPrefix(full, module)
			switch {
			case full == "C":
				t.Errorf("%s: cgo", s.path)
			case !ours || below(rel, rule.part) && !below(rel, forTests...):
			case below(rel, forTests...):
				t.Errorf("%s imports %s, which is for tests", s.path, rel)
			case slices.Contains(rule.imports, rel), below(rel, "internal/objstore", "internal/ledger") && rule.part == "cmd":
			default:
				t.Errorf("%s imports %s; %s may use %v", s.path, rel, rule.part, rule.imports)
			}
		}
	}
}

// forbidden calls, with where they are allowed and why.
var forbidden = []struct {
	pkg, name string
	allowed   []string
	why       string
}{
	{"os", "Exit", []string{"cmd"}, "only a command decides that the process ends"},
	{"log", "Fatal", nil, "only a command decides that the process ends, and with an exit code"},
	{"context", "Background", []string{"cmd"}, "work below a command can always be ended"},
	{"context", "TODO", []string{"internal/objstore/factory"}, "work below a command can always be ended; only reading the environment has nothing to end"},
	{"time", "Now", []string{"cmd", "reconcile/pass", "reconcile/mend", "internal/objstore", "internal/ledger", "report"}, "the nouns and the formats take the time as an argument"},
}

func TestNothingCallsWhatItMustNot(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.isTestCode() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if !ok || x.Obj != nil { // a variable of that name is no package
				return true
			}
			for _, f := range forbidden {
				if x.Name == f.pkg && sel.Sel.Name == f.name && !below(s.pkg, f.allowed...) {
					t.Errorf("%s: %s.%s: %s", s.fset.Position(n.Pos()), f.pkg, f.name, f.why)
				}
			}
			return true
		})
	}
}

// There is no way to delete an object, not even an unused one.
func TestNoStoreCanDelete(t *testing.T) {
	t.Parallel()
	verb := regexp.MustCompile(`^(Delete|Remove|Purge|Undelete|Truncate)`)
	checked := 0
	for _, s := range sources(t) {
		if s.isTestCode() {
			continue // the tests' own servers take objects away
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.InterfaceType:
				for _, m := range n.Methods.List {
					for _, name := range m.Names {
						checked++
						if verb.MatchString(name.Name) {
							t.Errorf("%s: an interface with the method %s", s.fset.Position(n.Pos()), name.Name)
						}
					}
				}
			case *ast.FuncDecl:
				if n.Recv != nil && below(s.pkg, "internal/objstore") {
					checked++
					if verb.MatchString(n.Name.Name) {
						t.Errorf("%s: a store with the method %s", s.fset.Position(n.Pos()), n.Name.Name)
					}
				}
			case *ast.SelectorExpr:
				if strings.HasPrefix(n.Sel.Name, "DeleteObject") {
					t.Errorf("%s: %s", s.fset.Position(n.Pos()), n.Sel.Name)
				}
			}
			return true
		})
	}
	if checked < 20 {
		t.Errorf("only %d methods seen: the test looks at nothing", checked)
	}
}

// tracked are the files that git knows; outside of a checkout the test is skipped.
func tracked(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Skipf("not in a git checkout: %v", err)
	}
	var files []string
	for _, f := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		if info, err := os.Lstat(f); err == nil && info.Mode().IsRegular() {
			files = append(files, f)
		}
	}
	return files
}

func TestTheRepositoryStaysSmall(t *testing.T) {
	t.Parallel()
	var testdata int64
	for _, f := range tracked(t) {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		if info.Size() > 1<<20 {
			t.Errorf("%s has %d bytes; nothing in the repository is larger than 1 MiB", f, info.Size())
		}
		if strings.HasPrefix(f, "testdata/") {
			testdata += info.Size()
		}
	}
	if testdata > 2<<20 {
		t.Errorf("testdata has %d bytes; it stays below 2 MiB", testdata)
	}
}

// The project speaks of itself only: no path of somebody's machine.
func TestNoFileNamesAMachinesFolders(t *testing.T) {
	t.Parallel()
	// Written so that this file does not match itself.
	alien := regexp.MustCompile(`(^|[^A-Za-z0-9._/-])/(ro` + `ot|Us` + `ers|wo` + `rk)/[A-Za-z0-9._-]+/`)
	for _, f := range tracked(t) {
		if strings.HasSuffix(f, ".sum") || strings.HasPrefix(f, "testdata/") || strings.HasSuffix(f, "package-lock.json") {
			continue
		}
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range bytes.Split(data, []byte("\n")) {
			if m := alien.Find(line); m != nil {
				t.Errorf("%s:%d names %q", f, i+1, m)
			}
		}
	}
}

// Tables of exit codes in documents are those of the program.
func TestDocumentsListTheExitCodesOfTheProgram(t *testing.T) {
	t.Parallel()
	row := regexp.MustCompile("(?m)^\\| *`?(\\d+)`? *\\| *`?([a-z_]+)`?")
	for _, doc := range []string{"README.md", "docs/operations.md"} {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		_, section, ok := strings.Cut(string(text), "\n## Exit codes\n")
		if !ok {
			t.Errorf("%s has no section \"## Exit codes\"", doc)
			continue
		}
		section, _, _ = strings.Cut(section, "\n## ")
		var got, want []string
		for _, m := range row.FindAllStringSubmatch(section, -1) {
			got = append(got, m[1]+" "+m[2])
		}
		for _, d := range reconcile.ExitDocs() {
			want = append(want, fmt.Sprintf("%d %s", d.Code, d.Name))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s lists %q, the program has %q", doc, got, want)
		}
	}
}

func TestTheModuleReplacesNothing(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if regexp.MustCompile(`(?m)^\s*(replace|exclude)\b`).Match(data) {
		t.Error("go.mod replaces or excludes a module: who imports this one would not get that")
	}
}

// Links of documents to files of the repository lead somewhere.
func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	for _, f := range tracked(t) {
		if !strings.HasSuffix(f, ".md") {
			continue
		}
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(data), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(f), filepath.FromSlash(m[1]))); err != nil {
				t.Errorf("%s links to %s: %v", f, m[1], err)
			}
		}
	}
}

// The README's questions are those that the ledger's tests answer.
func TestReadmeHasTheAnalystQueries(t *testing.T) {
	t.Parallel()
	sql, err := os.ReadFile("docs/analyst-queries.sql")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	questions := strings.Split(string(sql), "-- Q: ")[1:]
	if len(questions) != 5 {
		t.Errorf("%d questions, want 5", len(questions))
	}
	for _, q := range questions {
		if !strings.Contains(string(readme), strings.TrimSpace(q)) {
			t.Errorf("README.md lacks, or has otherwise: %.60s", q)
		}
	}
}
