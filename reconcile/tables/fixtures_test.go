package tables_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/fleet"
	"github.com/rocketkeep/reconcile/reconcile/pass"
	"github.com/rocketkeep/reconcile/reconcile/tables"
)

// noWait is a clock whose waits pass at once.
type noWait struct{ pass.SystemClock }

func (noWait) Sleep(ctx context.Context, _ time.Duration) error { return ctx.Err() }

// look runs a whole pass over everything below uri.
func look(t *testing.T, uri string, versions reconcile.Versions, change func(*pass.Options)) *pass.Outcome {
	t.Helper()
	stores := factory.New(factory.Options{Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(stores.Close)
	found, err := fleet.Discover(t.Context(), stores, []string{uri}, fleet.Filter{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	opts := pass.Options{
		Open: func(target reconcile.Target) reconcile.Source {
			return tables.New(target, stores, tables.Options{Versions: versions})
		},
		Stores: stores, ConfirmAfter: time.Second, TargetTimeout: time.Minute, Concurrency: 16, Clock: noWait{}, Logger: slog.New(slog.DiscardHandler),
		Policy: reconcile.Policy{Limits: reconcile.DefaultLimits(), DropPartialFragments: true}, Problems: found.Problems, ProblemFindings: found.Findings,
	}
	if change != nil {
		change(&opts)
	}
	out, err := pass.Look(t.Context(), found.Targets, opts)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// references are what the table's versions in scope name.
func references(t *testing.T, root string, versions reconcile.Versions) []reconcile.Reference {
	t.Helper()
	stores := factory.New(factory.Options{})
	loc, err := stores.Locate(root)
	if err != nil {
		t.Fatal(err)
	}
	tab := tables.New(reconcile.Target{Name: "x", Location: loc}, stores, tables.Options{Versions: versions})
	if _, err := tab.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	var out []reconcile.Reference
	for ref, err := range tab.References(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, ref)
	}
	return out
}

func show(fs []reconcile.Finding) string {
	s := ""
	for _, f := range fs {
		reason := ""
		if f.Reason != nil {
			reason = *f.Reason
		}
		s += fmt.Sprintf("\n  %s %s %s %s", f.Role, f.Verdict, f.Path, reason)
	}
	return s
}

// Every table of every release: nothing is found when it is whole, and exactly the
// damaged object when one object is gone or cut short, for every object it names.
func TestRealTablesWholeAndDamaged(t *testing.T) {
	t.Parallel()
	for name := range lancetest.Fixtures(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			root := lancetest.CopyFixture(t, name, dir)
			whole := look(t, root, reconcile.VersionsRetained, nil)
			if len(whole.Findings) != 0 || len(whole.Targets) != 1 {
				t.Fatalf("whole table: %d targets, findings %s", len(whole.Targets), show(whole.Findings))
			}
			refs := references(t, root, reconcile.VersionsRetained)
			if int64(len(refs)) != whole.Totals.References || whole.Totals.Checked != whole.Totals.References {
				t.Errorf("%d references walked, %d counted, %d checked", len(refs), whole.Totals.References, whole.Totals.Checked)
			}
			for _, ref := range refs {
				damageEach(t, root, ref)
			}
		})
	}
}

// damageEach takes one object away, then cuts it short, and puts it back.
func damageEach(t *testing.T, root string, ref reconcile.Reference) {
	t.Helper()
	file := ref.Location.Key
	if _, err := os.Stat(file); os.IsNotExist(err) && len(ref.Alternates) > 0 {
		for _, alt := range ref.Alternates {
			if _, err := os.Stat(alt.Location.Key); err == nil {
				file = alt.Location.Key
			}
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	expect(t, "gone", root, ref, reconcile.Missing)
	if err := os.WriteFile(file, data[:len(data)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	switch {
	case ref.Size > 0:
		expect(t, "cut", root, ref, reconcile.SizeMismatch)
	case ref.Role == reconcile.RoleData || ref.Role == reconcile.RoleDeletion || ref.Role == reconcile.RoleIndex:
		expect(t, "cut", root, ref, reconcile.Unreadable)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	switch {
	case ref.Size > 0:
		expect(t, "emptied", root, ref, reconcile.SizeMismatch)
	case ref.MinSize > 0:
		expect(t, "emptied", root, ref, reconcile.Unreadable)
	case ref.Role == reconcile.RoleData || ref.Role == reconcile.RoleDeletion:
		t.Errorf("%s %s has no least size", ref.Role, ref.Path)
	}
}

func expect(t *testing.T, how, root string, ref reconcile.Reference, v reconcile.Verdict) {
	t.Helper()
	out := look(t, root, reconcile.VersionsRetained, func(o *pass.Options) { o.Depth = reconcile.DepthFooter })
	if len(out.Findings) != 1 || out.Findings[0].Verdict != v || out.Findings[0].Path != ref.Path || out.Findings[0].Role != ref.Role {
		t.Errorf("%s %s %s: want exactly that, %s, got %d findings%s", how, ref.Role, ref.Path, v, len(out.Findings), show(out.Findings))
		return
	}
	f := out.Findings[0]
	if len(f.Scopes) == 0 {
		t.Errorf("%s %s: no scope", how, ref.Path)
	}
	want := reconcile.ExitDivergence
	if ref.Harmless {
		want = reconcile.ExitClean
	}
	if len(out.Targets[0].NotChecked) > 0 && out.Exit() == reconcile.ExitIncomplete {
		return // a write-ahead log is not looked at
	}
	if out.Exit() != want {
		t.Errorf("%s %s: exit %d, want %d", how, ref.Path, out.Exit(), want)
	}
}

// A drop that leaves a vector index without a fragment takes its entry out too, in
// a commit of its own: the library's optimize would fail on it.
func TestADropTakesAnEmptyVectorIndexWithIt(t *testing.T) {
	t.Parallel()
	root := lancetest.CopyFixture(t, "0.39.0/vector", t.TempDir())
	for _, ref := range references(t, root, reconcile.VersionsCurrent) {
		if ref.Role == reconcile.RoleData && ref.FragmentID < 2 {
			if err := os.Remove(ref.Location.Key); err != nil {
				t.Fatal(err)
			}
		}
	}
	out := look(t, root, reconcile.VersionsCurrent, nil)
	var got []string
	for _, a := range out.Actions {
		got = append(got, fmt.Sprintf("%s %d %d", a.Action, len(a.Fragments), len(a.Files)))
	}
	if want := []string{"drop_fragment 2 0", "drop_index 0 0"}; !slices.Equal(got, want) {
		t.Errorf("actions %v, want %v", got, want)
	}
}
