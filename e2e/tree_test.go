package e2e

import (
	"encoding/json"
	"fmt"
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

// wholeTree is a tree of every kind of store.
var wholeTree = []string{"--stores", "14", "--generic", "2", "--datagen", "1", "--contexts", "1", "--blobv2", "1"}

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

// expect are the findings that the tree's damages must give, and what the registries
// must say of targets. A store that lost everything names its objects by number only:
// every data file that was there.
func (tr tree) expect(t *testing.T, d document) (findings, registry []string) {
	t.Helper()
	findings, registry = []string{}, []string{}
	for _, b := range tr.Broken {
		switch {
		case b.Role == nil:
			registry = append(registry, b.Target+" "+b.Verdict)
			continue
		case *b.Role == "blob":
			// The context table names its blobs in a column, and the collection is its own target.
			findings = append(findings, strings.Join([]string{"blobs:ctx", *b.Role, b.Verdict, b.Object}, " "))
			continue
		case b.Kind != "all_data_missing":
			findings = append(findings, strings.Join([]string{b.Target, *b.Role, b.Verdict, b.Object}, " "))
			continue
		}
		n := 0
		for _, f := range d.Findings {
			if f.Target == b.Target && f.Role == "data" && f.Verdict == "missing" && slices.Contains(f.BlockedBy, "everything_missing") {
				findings = append(findings, strings.Join([]string{f.Target, f.Role, f.Verdict, f.Path}, " "))
				n++
			}
		}
		if n != b.Fragment {
			t.Errorf("%s: %d data files missing, want %d", b.Target, n, b.Fragment)
		}
	}
	slices.Sort(findings)
	slices.Sort(registry)
	return findings, registry
}

func (tr tree) check(t *testing.T, d document) {
	t.Helper()
	got := d.brief()
	slices.Sort(got)
	findings, registry := tr.expect(t, d)
	if diff := cmp.Diff(findings, got); diff != "" {
		t.Errorf("findings (-want +got)\n%s", diff)
	}
	rows := []string{}
	for _, tg := range d.Targets {
		if tg.Registry != nil && *tg.Registry != "ok" {
			rows = append(rows, tg.Target+" "+*tg.Registry)
		}
		if len(tg.NotChecked) > 0 {
			t.Errorf("%s: not looked at: %+v", tg.Target, tg.NotChecked)
		}
	}
	if diff := cmp.Diff(registry, rows); diff != "" {
		t.Errorf("registries (-want +got)\n%s", diff)
	}
	if d.Coverage.Checked != d.Coverage.References || d.Coverage.References == 0 {
		t.Errorf("checked %d of %d", d.Coverage.Checked, d.Coverage.References)
	}
	if len(tr.Broken) == 0 && len(d.Findings) > 0 {
		t.Errorf("a healthy tree has findings: %v", d.brief())
	}
}

// reportOnly are the findings that a repair by the default policy leaves.
func reportOnly(d document) []string {
	var out []string
	for i, f := range d.Findings {
		if f.ProposedAction == "none" || slices.Contains(f.BlockedBy, "everything_missing") {
			out = append(out, d.brief()[i])
		}
	}
	slices.Sort(out)
	return out
}

// repairTree carries out a run over the damaged tree, and holds the next pass to what
// policy leaves: drops and index entries are done, everything else is as it was.
func repairTree(t *testing.T, env []string, dir, uri string, before document) {
	t.Helper()
	config := filepath.Join(dir, "reconcile.yaml")
	text := fmt.Sprintf("database: %q\n%sverify: {confirm_after: 1s, min_manifest_age: 0s, pending_max_age: 0s}\n%s", "sqlite:"+filepath.Join(dir, "ledger.db"), treePlaces(uri), fullAtOnce)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"run", "--config", config, "--output", "json"}
	// One store lost everything: that drop is refused.
	applied := 0
	for _, r := range runIn(t, dir, env, args...).exit(5).pass().Repairs {
		if r["state"] == "applied" {
			applied++
		}
	}
	if applied == 0 || applied != len(before.Findings)-len(reportOnly(before)) {
		t.Errorf("%d repairs for %d findings that allow one", applied, len(before.Findings)-len(reportOnly(before)))
	}
	after := runIn(t, dir, env, args...).exit(5).pass()
	got := after.brief()
	slices.Sort(got)
	if diff := cmp.Diff(reportOnly(before), got); diff != "" {
		t.Errorf("after the repair (-want +got)\n%s", diff)
	}
	if len(after.Repairs) > 0 {
		t.Errorf("the second pass repairs again: %v", after.Repairs)
	}
}

// treePlaces are the store root of a tree, and the blobs that its context table names.
func treePlaces(uri string) string {
	return fmt.Sprintf("stores: [{name: rk, uri: %q, discover: both}]\nblobs: [{name: ctx, uri: %q, references: {lance: {uri: %q}}}]\n", uri, uri+"-blobs", uri+"/ctx-0000.lance")
}

// both looks at a root by registries and listing.
func both(t *testing.T, dir, uri string) []string {
	t.Helper()
	config := filepath.Join(dir, "look.yaml")
	text := treePlaces(uri) + "verify: {pending_max_age: 0s}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return look("--config", config)
}

func TestTreeOfRealStoresOnFiles(t *testing.T) {
	long(t)
	t.Parallel()
	for _, damage := range []string{"none", "all"} {
		t.Run(damage, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			uri := filepath.Join(dir, "tree")
			tr := makeTree(t, uri, nil, append(wholeTree, "--damage", damage)...)
			args := both(t, dir, uri)
			tr.check(t, run(t, nil, append(args, "--depth", "footer")...).pass())
			d := run(t, nil, args...).pass()
			tr.check(t, d)
			if damage == "all" {
				repairTree(t, nil, dir, uri, d)
			}
		})
	}
}

func TestTreeOfRealStoresOnS3(t *testing.T) {
	long(t)
	t.Parallel()
	for _, damage := range []string{"none", "all"} {
		t.Run(damage, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := servertest.Proxy(t, servertest.Versitygw(t))
			uri := "s3://" + s.Bucket + "/tree"
			tr := makeTree(t, uri, s.Env(), append(wholeTree, "--damage", damage)...)
			s.ClearLog()
			d := run(t, s.Env(), both(t, dir, uri)...).pass()
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
			if damage == "all" {
				repairTree(t, s.Env(), dir, uri, d)
			}
		})
	}
}
