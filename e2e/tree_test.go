package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/servertest"
)

// tree is what make_tree.mjs says of the store tree that it made.
type tree struct {
	Stores []struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
	} `json:"stores"`
	Broken []struct {
		Kind     string  `json:"kind"`
		Target   string  `json:"contract_target"`
		Role     *string `json:"role"`
		Verdict  string  `json:"verdict"`
		Object   string  `json:"object"`
		Fragment int     `json:"fragments"`
	} `json:"broken"`
}

// lookDamages are the damages that a look without registries, write-ahead logs and
// blobs can see.
const lookDamages = "missing_data,missing_deletion,truncated_data,empty_data,missing_index,all_missing,stale_hint"

// makeTree builds a tree of stores with the real library and breaks it.
func makeTree(t *testing.T, out string, env []string, args ...string) tree {
	t.Helper()
	lancetest.Library(t)
	expected := filepath.Join(t.TempDir(), "expected.json")
	cmd := exec.CommandContext(t.Context(), "node", append([]string{"fixtures/make_tree.mjs", out, "--expected", expected}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make tree: %v\n%s", err, b)
	}
	b, err := os.ReadFile(expected)
	if err != nil {
		t.Fatal(err)
	}
	var tr tree
	if err := json.Unmarshal(b, &tr); err != nil {
		t.Fatal(err)
	}
	return tr
}

// expect are the findings that the tree's damages must give. A store that lost
// everything names its objects by number only: every data file that was there.
func (tr tree) expect(t *testing.T, d document) []string {
	t.Helper()
	want := []string{}
	for _, b := range tr.Broken {
		if b.Kind != "all_data_missing" {
			want = append(want, strings.Join([]string{b.Target, *b.Role, b.Verdict, b.Object}, " "))
			continue
		}
		n := 0
		for _, f := range d.Findings {
			if f.Target == b.Target && f.Role == "data" && f.Verdict == "missing" && slices.Contains(f.BlockedBy, "everything_missing") {
				want = append(want, strings.Join([]string{f.Target, f.Role, f.Verdict, f.Path}, " "))
				n++
			}
		}
		if n != b.Fragment {
			t.Errorf("%s: %d data files missing, want %d", b.Target, n, b.Fragment)
		}
	}
	slices.Sort(want)
	return want
}

func (tr tree) check(t *testing.T, d document) {
	t.Helper()
	got := d.brief()
	slices.Sort(got)
	if diff := cmp.Diff(tr.expect(t, d), got); diff != "" {
		t.Errorf("findings (-want +got)\n%s", diff)
	}
	if d.Coverage.Checked != d.Coverage.References || d.Coverage.References == 0 {
		t.Errorf("checked %d of %d", d.Coverage.Checked, d.Coverage.References)
	}
	if len(tr.Broken) == 0 && len(d.Findings) > 0 {
		t.Errorf("a healthy tree has findings: %v", d.brief())
	}
}

func TestTreeOfRealStoresOnFiles(t *testing.T) {
	long(t)
	t.Parallel()
	for _, c := range []struct{ name, damage string }{{"healthy", "none"}, {"damaged", lookDamages}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "tree")
			tr := makeTree(t, out, nil, "--stores", "9", "--damage", c.damage)
			tr.check(t, run(t, nil, look(out)...).pass())
			tr.check(t, run(t, nil, look("--depth", "footer", out)...).pass())
		})
	}
}

func TestTreeOfRealStoresOnS3(t *testing.T) {
	long(t)
	t.Parallel()
	for _, c := range []struct{ name, damage string }{{"healthy", "none"}, {"damaged", lookDamages}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := servertest.Proxy(t, servertest.Versitygw(t))
			uri := "s3://" + s.Bucket + "/tree"
			tr := makeTree(t, uri, s.Env(), "--stores", "9", "--damage", c.damage)
			s.ClearLog()
			d := run(t, s.Env(), look(uri)...).pass()
			tr.check(t, d)
			if w := s.Writes(); len(w) > 0 {
				t.Errorf("a look sent %d requests that were neither HEAD, GET nor LIST: %v", len(w), w[0])
			}
			heads := 0
			for _, r := range s.Requests() {
				if r.Op == "HEAD" {
					heads++
				}
			}
			if got := d.Totals["requests"].(map[string]any)["head"].(float64); int(got) != heads {
				t.Errorf("the document counts %v HEADs, the server saw %d", got, heads)
			}
		})
	}
}
