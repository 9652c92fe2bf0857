package pass

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// tally is a memory of nothing that keeps how each check was counted.
type tally struct {
	Memory
	words []string
}

func (c *tally) EachOpenFinding(context.Context, string, func(ledger.Finding)) error { return nil }
func (c *tally) HighestVersion(context.Context, string) (*uint64, error)             { return nil, nil }
func (c *tally) Now(context.Context) (time.Time, error)                              { return time.Time{}, nil }
func (c *tally) Sightings(context.Context, []string) (map[string]ledger.Sighting, error) {
	return nil, nil
}

func (c *tally) RecordTarget(_ context.Context, r ledger.TargetRecord) (ledger.TargetSummary, error) {
	word := strings.TrimSpace(r.Result.State.String() + " " + deref(r.Result.Reason))
	if r.CheckSucceeded {
		word += " succeeded"
	}
	c.words = append(c.words, word)
	return ledger.TargetSummary{}, nil
}

func (c *tally) Fail(_ context.Context, _ ledger.CooldownPolicy, f ledger.Failure) (ledger.Cooldown, error) {
	c.words = append(c.words, "failed "+string(f.Kind))
	return ledger.Cooldown{}, nil
}

func throttledError() error {
	return &objstore.Error{Op: "stat", Status: 503, Err: objstore.ErrThrottled}
}

func serverError() error {
	return &objstore.Error{Op: "stat", Status: 500, Err: errors.New("broken")}
}

// refusing makes the answers of a key an error, from the nth request of an operation on.
func (s *scripted) refusing(key, of string, from int, err error) {
	was := s.answer[key]
	s.answer[key] = func(op string, n int) (objstore.Attrs, error) {
		switch {
		case op == of && n >= from:
			return objstore.Attrs{}, err
		case was == nil:
			return objstore.Attrs{}, notFound()
		}
		return was(op, n)
	}
}

func TestWhichChecksCountAsFailures(t *testing.T) {
	t.Parallel()
	lost := func(s *scripted, _ *fakeSource) { delete(s.answer, root+"/data/b") }
	trace := func(reason string) []reconcile.Finding {
		f := reconcile.NewFinding(reconcile.Target{Name: "table:t"}, reconcile.Reference{Role: reconcile.RoleManifest, Path: "_refs/", Location: at(root + "/_refs/")}, time.Time{})
		f.Verdict, f.Reason = reconcile.Undecided, reconcile.Ptr(reason)
		return []reconcile.Finding{f}
	}
	for _, tt := range []struct {
		name   string
		damage func(*scripted, *fakeSource)
		// stop ends the pass: "before" both looks, "between" them or in the "second".
		stop string
		want []string
	}{
		{"a whole look that finds damage went well", lost, "", []string{"diverged succeeded"}},
		{"a pass that ended before the look", lost, "before", []string{"incomplete interrupted"}},
		{"a pass that ended between the looks", lost, "between", []string{"incomplete interrupted"}},
		{"a pass that ended in the second look", lost, "second", []string{"incomplete interrupted"}},
		{"a pass that ended between the looks at what the metadata gives its own reason for", func(s *scripted, f *fakeSource) {
			lost(s, f)
			f.refs[1].Reason = "generation_gone"
		}, "between", []string{"incomplete interrupted"}},
		{"a pass that ended while the first answer was none", func(s *scripted, _ *fakeSource) {
			s.refusing(root+"/data/b", "stat", 1, serverError())
		}, "between", []string{"incomplete interrupted"}},
		{"a pass that ended before an unreadable manifest was read again", func(_ *scripted, f *fakeSource) {
			f.facts = reconcile.Facts{Settled: true, State: reconcile.StateUnreadable, Reason: reconcile.ReasonBadManifest, Findings: trace(reconcile.ReasonBadManifest)}
		}, "between", []string{"unreadable bad_manifest"}},
		{"an unreadable manifest", func(_ *scripted, f *fakeSource) {
			f.facts = reconcile.Facts{Settled: true, State: reconcile.StateUnreadable, Reason: reconcile.ReasonBadManifest, Findings: trace(reconcile.ReasonBadManifest)}
		}, "", []string{"unreadable bad_manifest", "failed check"}},
		{"an object that gives no answer", func(s *scripted, _ *fakeSource) {
			s.refusing(root+"/data/b", "stat", 1, serverError())
			s.refusing(root+"/data/b", "restat", 1, serverError())
		}, "", []string{"incomplete server_error", "failed check"}},
		{"a throttled object", func(s *scripted, _ *fakeSource) {
			s.refusing(root+"/data/b", "stat", 1, throttledError())
			s.refusing(root+"/data/b", "restat", 1, throttledError())
		}, "", []string{"incomplete throttled"}},
		{"a throttled object with a reason of its own", func(s *scripted, f *fakeSource) {
			s.refusing(root+"/data/b", "stat", 1, throttledError())
			s.refusing(root+"/data/b", "restat", 1, throttledError())
			f.refs[1].Reason = "generation_gone"
		}, "", []string{"incomplete generation_gone"}},
		{"a throttled object beside one that gives no answer", func(s *scripted, f *fakeSource) {
			f.refs[1].Reason, f.refs[2].Reason = "generation_gone", "generation_gone"
			for key, err := range map[string]error{"/data/b": serverError(), "/data/c": throttledError()} {
				s.refusing(root+key, "stat", 1, err)
				s.refusing(root+key, "restat", 1, err)
			}
		}, "", []string{"incomplete generation_gone", "failed check"}},
		{"an object that was throttled once and then not there", func(s *scripted, _ *fakeSource) {
			delete(s.answer, root+"/data/b")
			s.refusing(root+"/data/b", "stat", 1, throttledError())
		}, "", []string{"incomplete " + reasonSeenOnce}},
		{"controls that are throttled", func(s *scripted, f *fakeSource) {
			lost(s, f)
			for _, key := range []string{"/_versions/3.manifest", "/data/a", "/data/c"} {
				from := 2
				if key == "/_versions/3.manifest" {
					from = 1
				}
				s.refusing(root+key, "stat", from, throttledError())
			}
		}, "", []string{"incomplete controls_failed"}},
		{"metadata that is throttled in the second look", func(s *scripted, f *fakeSource) {
			lost(s, f)
			f.rev = func([]reconcile.Reference) (reconcile.Revisit, error) {
				return reconcile.Revisit{}, throttledError()
			}
		}, "", []string{"incomplete throttled"}},
		{"metadata that cannot be read in the second look", func(s *scripted, f *fakeSource) {
			lost(s, f)
			f.rev = func([]reconcile.Reference) (reconcile.Revisit, error) {
				return reconcile.Revisit{}, serverError()
			}
		}, "", []string{"incomplete server_error", "failed check"}},
		{"a walk that was throttled", func(_ *scripted, f *fakeSource) { f.walkErr = throttledError() }, "", []string{"incomplete throttled"}},
		{"a walk that broke off", func(_ *scripted, f *fakeSource) { f.walkErr = serverError() }, "", []string{"incomplete server_error", "failed check"}},
		{"a throttled listing beside whole data", func(_ *scripted, f *fakeSource) { f.facts.Findings = trace(reconcile.ReasonThrottled) }, "", []string{"incomplete throttled"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newScripted()
			src := table(s)
			tt.damage(s, src)
			opts, targets, clock := options(s, src)
			c := &tally{}
			opts.Recall.Memory, opts.Logger = c, slog.New(slog.DiscardHandler)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			stop := func() { cancel(errors.New("told to stop")) }
			switch tt.stop {
			case "before":
				stop()
			case "between":
				clock.onSleep = stop
			case "second":
				src.rev = func(refs []reconcile.Reference) (reconcile.Revisit, error) {
					stop()
					return reconcile.Revisit{Named: make([]bool, len(refs)), Metadata: src.facts.Findings}, context.Canceled
				}
			}
			if _, err := Look(ctx, targets, opts); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, c.words); d != "" {
				t.Errorf("counted (-want +got)\n%s", d)
			}
		})
	}
}

func TestATargetThatIsOutOfTimeCountsAsAFailure(t *testing.T) {
	t.Parallel()
	s := newScripted()
	src := table(s)
	src.openErr = context.DeadlineExceeded
	opts, targets, _ := options(s, src)
	opts.TargetTimeout = time.Nanosecond
	c := &tally{}
	opts.Recall.Memory = c
	if _, err := Look(t.Context(), targets, opts); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"incomplete target_timeout", "failed check"}, c.words); d != "" {
		t.Errorf("counted (-want +got)\n%s", d)
	}
}
