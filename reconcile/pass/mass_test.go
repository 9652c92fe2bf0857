package pass

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// agedSource shows only fragments with even ids to be old.
type agedSource struct {
	*fakeSource
	asked int
}

func (a *agedSource) Older(_ context.Context, refs []reconcile.Reference, _ time.Duration) ([]bool, error) {
	a.asked++
	out := make([]bool, len(refs))
	for i := range refs {
		out[i] = refs[i].FragmentID%2 == 0
	}
	return out, nil
}

// Which suspect an answer is about must not slip, in whichever batch it is: every one
// is told apart by its fragment.
func TestEachSuspectOfSeveralBatchesGetsItsOwnAnswers(t *testing.T) {
	t.Parallel()
	const n = 2*confirmBatch + 100
	s := newScripted()
	src := &agedSource{fakeSource: table(s)}
	src.refs = nil
	want := map[uint64]string{}
	for i := range uint64(n) {
		ref := dataRef(fmt.Sprintf("f%06d", i), 100)
		ref.FragmentID = i
		src.refs = append(src.refs, ref)
		switch {
		// In all of the first batch nothing is damaged, so that age is asked about later.
		case i%5 == 1 || i < confirmBatch && i%5 != 2:
			s.answer[ref.Location.Key] = func(op string, _ int) (objstore.Attrs, error) {
				if op == "stat" {
					return objstore.Attrs{}, notFound()
				}
				return objstore.Attrs{Size: 100}, nil
			}
		case i%5 == 2:
			want[i] = "superseded"
		case i%2 == 0:
			want[i] = "missing"
		default:
			want[i] = "pending"
		}
	}
	src.rev = func(refs []reconcile.Reference) (reconcile.Revisit, error) {
		rev := reconcile.Revisit{Named: make([]bool, len(refs))}
		for i := range refs {
			rev.Named[i] = refs[i].FragmentID%5 != 2
		}
		return rev, nil
	}
	opts, targets, _ := options(s, src.fakeSource)
	opts.Open = func(reconcile.Target) reconcile.Source { return src }
	out, err := Look(t.Context(), targets, opts)
	if err != nil {
		t.Fatal(err)
	}
	got := map[uint64]string{}
	for _, f := range out.Findings {
		got[*f.FragmentID] = f.Verdict.String()
		if f.Path != "data/"+fmt.Sprintf("f%06d", *f.FragmentID) || f.URL != f.Ref.Location.String() || f.Ref.Path != f.Path || f.FindingID != reconcile.FindingIDOf(src.target, f.Ref) {
			t.Fatalf("fragment %d has the names of another: %s %s %s", *f.FragmentID, f.Path, f.URL, f.Ref.Path)
		}
		if status := f.HTTPStatus; status == nil || *status != 404 {
			t.Fatalf("fragment %d, %s, has status %v", *f.FragmentID, f.Verdict, status)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("verdicts by fragment (-want +got):\n%s", diff)
	}
	if src.asked != 1 {
		t.Errorf("the age of the suspects was asked about %d times", src.asked)
	}
	if out.Totals.Flapped != int64(n-len(want)) || out.Totals.Verdicts[reconcile.Present] != int64(n-len(want)) {
		t.Errorf("flapped %d, present %d, want %d", out.Totals.Flapped, out.Totals.Verdicts[reconcile.Present], n-len(want))
	}
}
