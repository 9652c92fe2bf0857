package pass

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/reconcile"
)

// seenBefore is a memory that knows a version of every target.
type seenBefore struct{ *tally }

func (seenBefore) HighestVersion(context.Context, string) (*uint64, error) {
	return reconcile.Ptr(uint64(7)), nil
}

func TestDatasetsThatNothingIsThereOf(t *testing.T) {
	t.Parallel()
	absent := reconcile.Facts{Absent: true}
	noRoot := reconcile.Facts{Settled: true, State: reconcile.StateFailed, Reason: reconcile.ReasonNoSuchBucket}
	for _, tt := range []struct {
		name   string
		facts  reconcile.Facts
		target func(*reconcile.Target)
		known  bool
		want   []string
		exit   reconcile.ExitCode
	}{
		{"one that a user names is named by mistake", absent, func(*reconcile.Target) {}, false, []string{"nowhere table:t"}, reconcile.ExitFailed},
		{"one without its bucket as well", noRoot, func(*reconcile.Target) {}, false, []string{"nowhere table:t, no root"}, reconcile.ExitFailed},
		{"one that was read before is gone", absent, func(*reconcile.Target) {}, true, []string{"half_deleted nothing_there"}, reconcile.ExitIncomplete},
		{"one that was read before, without its bucket, says so", noRoot, func(*reconcile.Target) {}, true, []string{"failed no_such_bucket"}, reconcile.ExitFailed},
		{"an empty folder is none", absent, func(t *reconcile.Target) { t.Listed = true }, false, nil, reconcile.ExitFailed},
		{"an empty folder that was one is gone", absent, func(t *reconcile.Target) { t.Listed = true }, true, []string{"half_deleted nothing_there"}, reconcile.ExitIncomplete},
		{"a row over nothing has no store", absent, func(t *reconcile.Target) { t.Listed, t.Row = true, true }, true, []string{"diverged no_store"}, reconcile.ExitDivergence},
		{"a collection without its root could not be looked at", noRoot, func(t *reconcile.Target) { t.Kind = kindBlobs }, false, []string{"failed no_such_bucket"}, reconcile.ExitFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newScripted()
			src := table(s)
			src.facts = tt.facts
			tt.target(&src.target)
			opts, targets, clock := options(s, src)
			c := &tally{}
			opts.Recall.Memory = c
			if tt.known {
				opts.Recall.Memory = seenBefore{c}
			}
			opts.Registered = func(_ context.Context, ts []reconcile.Target) ([]string, error) {
				return []string{reconcile.RegistryOK}, nil
			}
			out, err := Look(t.Context(), targets, opts)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range out.Targets {
				got = append(got, r.State.String()+" "+deref(r.Reason))
			}
			for _, n := range out.Nowhere {
				text := "nowhere " + n.Target.Name
				if n.NoRoot {
					text += ", no root"
				}
				got = append(got, text)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			if len(out.Nowhere) > 0 && (len(c.words) > 0 || len(clock.slept) > 0) {
				t.Errorf("recorded %v, waited %v", c.words, clock.slept)
			}
			if got := out.Exit(); got != tt.exit {
				t.Errorf("exit %d, want %d", got, tt.exit)
			}
		})
	}
}
