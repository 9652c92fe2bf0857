package lance

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// columnCases are the tables that are written anew and compared value by value, by
// release; those of long only when RECONCILE_TEST_JUDGE is "all".
var columnCases = map[string]struct{ short, long []string }{
	"0.10.0": {
		[]string{"wide-2.0-1", "wide-2.0-10", "wide-2.0-1000", "changed-2.0-1000", "changed-2.0-30", "deleted-2.0-3000"},
		[]string{"changed-2.0-20000"},
	},
	"0.22.3": {
		[]string{"wide-2.0-10", "wide-2.0-1000", "wide-2.1-1", "wide-2.1-10", "wide-2.1-1000", "changed-2.0-1000", "changed-2.1-1000", "partial-2.1-100", "blob1-2.0-50", "blob1-2.1-50"},
		[]string{"changed-2.1-20000"},
	},
	"0.31.0": {
		[]string{"wide-2.0-1000", "wide-2.1-10", "wide-2.1-1000", "wide-2.2-1", "wide-2.2-10", "wide-2.2-1000", "changed-2.2-1000", "partial-2.2-100", "blob1-2.1-50", "blob2-2.2-20"},
		[]string{"wide-2.1-10000"},
	},
	newestRelease: {
		[]string{"wide-2.0-1", "wide-2.0-10", "wide-2.0-1000", "wide-2.1-1", "wide-2.1-10", "wide-2.1-1000", "wide-2.2-1", "wide-2.2-10", "wide-2.2-1000", "narrow-2.2-10000",
			"changed-2.0-1000", "changed-2.1-1000", "changed-2.2-30", "changed-2.2-6500", "partial-2.0-100", "partial-2.1-100", "partial-2.2-100",
			"blob1-2.0-50", "blob1-2.1-50", "blob2-2.2-20", "blob2big-2.2-6", "deleted-2.2-3000"},
		[]string{"wide-2.2-10000", "narrow-2.2-1000000"},
	},
}

// lostColumns are those that the newest release cannot read itself (it panics), by
// the release that wrote them.
var lostColumns = map[string][]string{"0.10.0": {"dict"}}

// Every value of every kind of column, as four releases write it in every format
// that they know, is what the newest release reads.
func TestTheLibraryReadsTheSameValues(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	newest := libraryDir(t, newestRelease)
	for release, cases := range columnCases {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			lib := libraryDir(t, release)
			names := cases.short
			if os.Getenv("RECONCILE_TEST_JUDGE") == "all" {
				names = slices.Concat(names, cases.long)
			}
			out := t.TempDir()
			runColumns(t, "make", release, lib, out, names)
			lost := runColumns(t, "dump", "", newest, out, names)
			for _, name := range names {
				t.Run(name, func(t *testing.T) {
					for _, column := range lost[name] {
						if !slices.Contains(lostColumns[release], column) {
							t.Errorf("release %s cannot read column %s", newestRelease, column)
						}
					}
					compareRows(t, filepath.Join(out, name))
					if strings.HasPrefix(name, "blob2") {
						compareSidecars(t, filepath.Join(out, name))
					}
				})
			}
		})
	}
}

// runColumns runs columns.mjs and gives the columns that the release cannot read.
func runColumns(t *testing.T, mode, release, lib, out string, cases []string) map[string][]string {
	t.Helper()
	args := []string{"../e2e/fixtures/columns.mjs", mode}
	if release != "" {
		args = append(args, release)
	}
	cmd := exec.CommandContext(t.Context(), "node", slices.Concat(args, []string{lib, out}, cases)...)
	said := &strings.Builder{}
	cmd.Stderr = said
	answers, err := cmd.Output()
	lost := map[string][]string{}
	n := 0
	for s := bufio.NewScanner(strings.NewReader(string(answers))); s.Scan(); n++ {
		var a struct {
			Case, Error string
			Lost        []string
		}
		if err := json.Unmarshal(s.Bytes(), &a); err != nil {
			t.Fatalf("columns.mjs said %q", s.Text())
		}
		if a.Error != "" {
			t.Errorf("%s %s: %s", mode, a.Case, a.Error)
		}
		lost[a.Case] = a.Lost
	}
	if err != nil || n != len(cases) {
		t.Fatalf("columns.mjs %s with release %s: %d of %d cases, %v\n%s", mode, release, n, len(cases), err, fmt.Sprintf("%.2000s", said.String()))
	}
	return lost
}
