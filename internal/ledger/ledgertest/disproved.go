package ledgertest

import (
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

func testDisproved(t *testing.T, h Harness) {
	b := open(t, h)
	ctx := t.Context()
	id, other := damage("x", 1, reconcile.Missing).FindingID, damage("x", 2, reconcile.Missing).FindingID
	fail := func(id string, disproved map[string]string) map[string]string {
		t.Helper()
		r, err := b.RefetchFailed(ctx, ledger.DefaultRefetch(), ledger.RefetchFailure{FindingID: id, Target: targetOf("x").URI, Disproved: disproved, Text: "no good"})
		if err != nil {
			t.Fatal(err)
		}
		return r.Disproved
	}
	is := func(what, id string, want map[string]string) {
		t.Helper()
		s, err := open(t, h).RefetchState(ctx, []string{id})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, s[id].Disproved); d != "" {
			t.Errorf("%s (-want +got)\n%s", what, d)
		}
	}
	type m = map[string]string
	if got := fail(id, nil); got == nil || len(got) != 0 {
		t.Errorf("none is %v", got)
	}
	is("none", id, m{})
	fail(id, m{"s3://a/": "e1"})
	is("the first", id, m{"s3://a/": "e1"})
	if got := fail(id, m{"s3://b/": "e2"}); len(got) != 2 {
		t.Errorf("told after the second: %v", got)
	}
	is("another peer's beside it", id, m{"s3://a/": "e1", "s3://b/": "e2"})
	fail(id, m{"s3://a/": "e3"})
	is("a later one of the same peer in its place", id, m{"s3://a/": "e3", "s3://b/": "e2"})
	fail(id, m{})
	is("nothing new takes none away", id, m{"s3://a/": "e3", "s3://b/": "e2"})
	odd := m{`"q" 'x' ü/`: "W/\"é\" <&>", "": "", "null": "null"}
	fail(other, odd)
	is("odd names", other, odd)
	fail(other, m{"a\x00b": "\xff"})
	odd["a\uFFFDb"] = "\uFFFD"
	is("what no text holds", other, odd)

	// A fetch that went well forgets them; the other object keeps its own.
	if err := b.RefetchDone(ctx, id); err != nil {
		t.Fatal(err)
	}
	fail(id, nil)
	is("after a fetch", id, m{})
	is("of another object", other, odd)

	// Two passes at once both leave theirs.
	var wg sync.WaitGroup
	want := m{}
	for _, peer := range []string{"p", "q", "r", "s"} {
		want[peer] = "e"
		wg.Go(func() {
			if _, err := b.RefetchFailed(ctx, ledger.DefaultRefetch(), ledger.RefetchFailure{FindingID: id, Target: targetOf("x").URI, Disproved: m{peer: "e"}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	is("of passes at once", id, want)
	if err := h.Exec(ctx, "UPDATE reconcile.refetch_attempts SET disproved = '[]'"); err == nil {
		t.Error("a list is taken for an object")
	}
}
