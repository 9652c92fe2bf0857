package pass

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

func failing(status int, err error) func(string, int) (objstore.Attrs, error) {
	return func(string, int) (objstore.Attrs, error) {
		return objstore.Attrs{}, &objstore.Error{Status: status, Err: err}
	}
}

// Each case damages the healthy table of three files in one way and says what the
// pass must make of it.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	const b = root + "/data/b"
	type want struct {
		Verdict string // "" = no finding
		Reason  string
		State   string
		Exit    reconcile.ExitCode
		Flapped int64
		Blocked []string
	}
	cases := []struct {
		name   string
		damage func(s *scripted, src *fakeSource)
		want   want
	}{
		{"a healthy table has no finding", func(*scripted, *fakeSource) {}, want{"", "", "clean", 0, 0, nil}},
		{"404 in both looks, with controls right, is missing", func(s *scripted, _ *fakeSource) { delete(s.answer, b) },
			want{"missing", "", "diverged", 3, 0, []string{}}},
		{"404 and then 200 is no finding but a flap", func(s *scripted, _ *fakeSource) {
			s.answer[b] = func(op string, _ int) (objstore.Attrs, error) {
				if op == "stat" {
					return objstore.Attrs{}, notFound()
				}
				return objstore.Attrs{Size: 100}, nil
			}
		}, want{"", "", "clean", 0, 1, nil}},
		{"200 at the second look after a 503 is no flap", func(s *scripted, _ *fakeSource) {
			s.answer[b] = func(op string, _ int) (objstore.Attrs, error) {
				if op == "stat" {
					return objstore.Attrs{}, &objstore.Error{Status: 503, Err: objstore.ErrThrottled}
				}
				return objstore.Attrs{Size: 100}, nil
			}
		}, want{"", "", "clean", 0, 0, nil}},
		{"503 and then 404 was told once only", func(s *scripted, _ *fakeSource) {
			s.answer[b] = func(op string, _ int) (objstore.Attrs, error) {
				if op == "stat" {
					return objstore.Attrs{}, &objstore.Error{Status: 503, Err: objstore.ErrThrottled}
				}
				return objstore.Attrs{}, notFound()
			}
		}, want{"undecided", "seen_missing_once", "incomplete", 4, 0, []string{"incomplete_look"}}},
		{"HEAD without and GET with the object contradict each other", func(s *scripted, _ *fakeSource) {
			s.answer[b] = func(op string, _ int) (objstore.Attrs, error) {
				if op == "probe" {
					return objstore.Attrs{Size: 100}, nil
				}
				return objstore.Attrs{}, notFound()
			}
		}, want{"undecided", "contradiction", "incomplete", 4, 0, []string{"incomplete_look"}}},
		{"the GET's code says that the bucket is gone", func(s *scripted, _ *fakeSource) {
			s.answer[b] = func(op string, _ int) (objstore.Attrs, error) {
				if op == "probe" {
					return objstore.Attrs{}, &objstore.Error{Status: 404, Code: "NoSuchBucket", Err: objstore.ErrNoSuchBucket}
				}
				return objstore.Attrs{}, notFound()
			}
		}, want{"undecided", "no_such_bucket", "incomplete", 4, 0, []string{"incomplete_look"}}},
		{"without a positive control nothing is missing", func(s *scripted, _ *fakeSource) {
			s.answer = map[string]func(string, int) (objstore.Attrs, error){}
		}, want{"undecided", "controls_failed", "incomplete", 4, 0, []string{"incomplete_look"}}},
		{"a store that answers for random keys proves nothing", func(s *scripted, _ *fakeSource) {
			delete(s.answer, b)
			s.all = func(op, key string) error {
				if cmpPrefix(key, root+"/data/.reconcile-control-") {
					return &objstore.Error{Status: 403, Err: objstore.ErrDenied}
				}
				return nil
			}
		}, want{"undecided", "controls_failed", "incomplete", 4, 0, []string{"incomplete_look"}}},
		{"403 is denied", func(s *scripted, _ *fakeSource) { s.answer[b] = failing(403, objstore.ErrDenied) },
			want{"denied", "access_denied", "incomplete", 4, 0, []string{"incomplete_look"}}},
		{"500 is undecided", func(s *scripted, _ *fakeSource) { s.answer[b] = failing(500, errors.New("internal")) },
			want{"undecided", "server_error", "incomplete", 4, 0, []string{"incomplete_look"}}},
		{"a time-out is undecided", func(s *scripted, _ *fakeSource) { s.answer[b] = failing(0, context.DeadlineExceeded) },
			want{"undecided", "timeout", "incomplete", 4, 0, []string{"incomplete_look"}}},
		{"200 without a length is undecided", func(s *scripted, _ *fakeSource) { s.present(objstore.Unknown, b) },
			want{"undecided", "no_content_length", "incomplete", 4, 0, []string{"incomplete_look"}}},
		{"what the newest version no longer names is superseded", func(s *scripted, src *fakeSource) {
			delete(s.answer, b)
			src.rev = func(refs []reconcile.Reference) (reconcile.Revisit, error) {
				return reconcile.Revisit{Version: 4, Named: make([]bool, len(refs))}, nil
			}
		}, want{"superseded", "", "clean", 0, 0, []string{}}},
		{"metadata that cannot be read again leaves it undecided", func(s *scripted, src *fakeSource) {
			delete(s.answer, b)
			src.rev = func([]reconcile.Reference) (reconcile.Revisit, error) {
				return reconcile.Revisit{}, &objstore.Error{Status: 500, Err: errors.New("internal")}
			}
		}, want{"undecided", "server_error", "incomplete", 4, 0, []string{"incomplete_look"}}},
		{"a version that fell between the looks is a roll-back", func(s *scripted, src *fakeSource) {
			delete(s.answer, b)
			src.rev = func(refs []reconcile.Reference) (reconcile.Revisit, error) {
				return reconcile.Revisit{Version: 2, Named: []bool{true}, RolledBack: true}, nil
			}
		}, want{"missing", "", "rolled_back", 3, 0, []string{"rolled_back"}}},
		{"what cannot be shown to be old is pending", func(s *scripted, src *fakeSource) { delete(s.answer, b); src.older = false },
			want{"pending", "", "pending", 4, 0, []string{}}},
		{"an older version can be brought back", func(s *scripted, _ *fakeSource) {
			s.answer[b] = func(op string, _ int) (objstore.Attrs, error) {
				if op == "versions" {
					return objstore.Attrs{Size: 100, VersionID: "v1"}, nil
				}
				return objstore.Attrs{}, notFound()
			}
		}, want{"recoverable", "", "diverged", 3, 0, []string{}}},
		{"only a delete marker brings nothing back", func(s *scripted, _ *fakeSource) {
			s.answer[b] = func(op string, _ int) (objstore.Attrs, error) {
				if op == "versions" {
					return objstore.Attrs{DeleteMarker: true}, nil
				}
				return objstore.Attrs{}, notFound()
			}
		}, want{"missing", "", "diverged", 3, 0, []string{}}},
		{"a version listing that fails leaves versions unknown", func(s *scripted, _ *fakeSource) {
			s.answer[b] = func(op string, _ int) (objstore.Attrs, error) {
				if op == "versions" {
					return objstore.Attrs{}, &objstore.Error{Status: 403, Err: objstore.ErrDenied}
				}
				return objstore.Attrs{}, notFound()
			}
		}, want{"missing", "", "diverged", 3, 0, []string{"versions_unknown"}}},
		{"HEAD and GET that tell two sizes contradict each other", func(s *scripted, _ *fakeSource) {
			s.answer[b] = func(op string, _ int) (objstore.Attrs, error) {
				if op == "probe" {
					return objstore.Attrs{Size: 100}, nil
				}
				return objstore.Attrs{Size: 50}, nil
			}
		}, want{"undecided", "contradiction", "incomplete", 4, 0, []string{"incomplete_look"}}},
		{"a listing that shows the key contradicts the 404", func(s *scripted, _ *fakeSource) {
			delete(s.answer, b)
			s.listed = []string{b}
		}, want{"undecided", "contradiction", "incomplete", 4, 0, []string{"incomplete_look"}}},
		{"a newest version that is no marker contradicts the 404", func(s *scripted, _ *fakeSource) {
			s.answer[b] = func(op string, _ int) (objstore.Attrs, error) {
				if op == "versions" {
					return objstore.Attrs{Size: 100, IsLatest: true}, nil
				}
				return objstore.Attrs{}, notFound()
			}
		}, want{"undecided", "contradiction", "incomplete", 4, 0, []string{"incomplete_look"}}},
		{"a damaged object whose older version is whole can be restored", func(s *scripted, src *fakeSource) {
			s.answer[b] = func(op string, _ int) (objstore.Attrs, error) {
				if op == "versions" {
					return objstore.Attrs{Size: 100, VersionID: "old"}, nil
				}
				return objstore.Attrs{Size: 50, VersionID: "new"}, nil
			}
			src.propose = func(fs []reconcile.Finding) []reconcile.PlanAction {
				if !fs[0].Restorable {
					panic("not restorable")
				}
				return nil
			}
			src.inspect = func(reconcile.Reference) (reconcile.Verdict, string, error) {
				return reconcile.Unreadable, reconcile.ReasonBadFooter, nil
			}
		}, want{"size_mismatch", "bad_footer", "diverged", 3, 0, []string{}}},
		{"another size than recorded is a mismatch with the inner reason", func(s *scripted, src *fakeSource) {
			s.present(50, b)
			src.inspect = func(reconcile.Reference) (reconcile.Verdict, string, error) {
				return reconcile.Unreadable, reconcile.ReasonBadFooter, nil
			}
		}, want{"size_mismatch", "bad_footer", "diverged", 3, 0, []string{}}},
		{"a whole file of another size says that the metadata is wrong", func(s *scripted, _ *fakeSource) { s.present(50, b) },
			want{"size_mismatch", "metadata_size_wrong", "diverged", 3, 0, []string{}}},
		{"too short for its format, with no size recorded, is unreadable", func(s *scripted, src *fakeSource) {
			src.refs[1].Size, src.refs[1].MinSize = 0, 16
			s.present(15, b)
		}, want{"unreadable", "too_short", "diverged", 3, 0, []string{}}},
		{"an archived object is there and cannot be read", func(s *scripted, _ *fakeSource) {
			s.answer[b] = func(string, int) (objstore.Attrs, error) { return objstore.Attrs{Size: 100, Archived: true}, nil }
		}, want{"archived", "", "diverged", 3, 0, []string{}}},
		{"a harmless object missing is reported without effect", func(s *scripted, src *fakeSource) {
			src.refs[1].Harmless = true
			delete(s.answer, b)
		}, want{"missing", "", "clean", 0, 0, []string{}}},
		{"a reference that does not resolve is undecided", func(_ *scripted, src *fakeSource) {
			src.refs[1].Location = objstore.Location{}
			src.refs[1].Reason = reconcile.ReasonUnknownBase
		}, want{"undecided", "unknown_base", "incomplete", 4, 0, []string{"incomplete_look"}}},
		{"an alternate place that holds it is enough", func(s *scripted, src *fakeSource) {
			delete(s.answer, b)
			src.refs[1].Alternates = []reconcile.Place{{Location: at("elsewhere")}, {Location: at("other/b")}}
			s.present(100, "other/b")
		}, want{"", "", "clean", 0, 0, nil}},
		{"an alternate that cannot be asked leaves it open", func(s *scripted, src *fakeSource) {
			delete(s.answer, b)
			src.refs[1].Alternates = []reconcile.Place{{Location: at("elsewhere")}}
			s.answer["elsewhere"] = failing(403, objstore.ErrDenied)
		}, want{"undecided", "access_denied", "incomplete", 4, 0, []string{"incomplete_look"}}},
		{"under a base without any readable object nothing is missing", func(s *scripted, src *fakeSource) {
			src.refs[1].Base, src.refs[1].Location = at("far"), at("far/data/b")
		}, want{"undecided", "controls_failed", "incomplete", 4, 0, []string{"incomplete_look"}}},
		{"a walk that breaks off makes the target incomplete", func(_ *scripted, src *fakeSource) {
			src.walkErr = &objstore.Error{Status: 500, Err: errors.New("internal")}
		}, want{"", "server_error", "incomplete", 4, 0, nil}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScripted()
			src := table(s)
			c.damage(s, src)
			opts, targets, clock := options(s, src)
			out, err := Look(t.Context(), targets, opts)
			if err != nil {
				t.Fatal(err)
			}
			got := want{State: out.Targets[0].State.String(), Exit: out.Exit(), Flapped: out.Totals.Flapped}
			for _, f := range out.Findings {
				if f.Path == "data/b" {
					got.Verdict, got.Blocked = f.Verdict.String(), f.BlockedBy
					if f.Reason != nil {
						got.Reason = *f.Reason
					}
				}
			}
			if got.Verdict == "" && out.Targets[0].Reason != nil {
				got.Reason = *out.Targets[0].Reason
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			if len(clock.slept) > 1 || len(clock.slept) == 1 && clock.slept[0] != time.Minute {
				t.Errorf("waited %v, want at most one wait of a minute", clock.slept)
			}
			checkSums(t, out)
		})
	}
}

func cmpPrefix(s, p string) bool { return len(s) >= len(p) && s[:len(p)] == p }

// checkSums holds the totals to what they are sums of.
func checkSums(t *testing.T, out *Outcome) {
	t.Helper()
	var states, verdicts int64
	for _, n := range out.Totals.TargetsByState {
		states += n
	}
	if states != out.Totals.Targets || int(states) != len(out.Targets) {
		t.Errorf("states add up to %d, targets %d, rows %d", states, out.Totals.Targets, len(out.Targets))
	}
	for _, n := range out.Totals.Verdicts {
		verdicts += n
	}
	if verdicts != out.Totals.References {
		t.Errorf("verdicts add up to %d, references %d", verdicts, out.Totals.References)
	}
	for _, f := range out.Findings {
		if still := f.Verdict == reconcile.Pending || f.Verdict == reconcile.Superseded; still && f.RowsAtRisk != nil && *f.RowsAtRisk != 0 {
			t.Errorf("%s is %s, and %d rows are at risk", f.Path, f.Verdict, *f.RowsAtRisk)
		}
	}
	if open := out.Totals.Verdicts[reconcile.Undecided] + out.Totals.Verdicts[reconcile.Denied]; out.Totals.Checked != out.Totals.References-open {
		t.Errorf("checked %d of %d references, %d of them open", out.Totals.Checked, out.Totals.References, open)
	}
}

// The store must answer right at the time of the second look as well, not only at
// the first: a control that fails in between takes the proof away.
func TestControlsAreAskedAgainAfterTheSecondLook(t *testing.T) {
	t.Parallel()
	s := newScripted()
	src := table(s)
	delete(s.answer, root+"/data/b")
	controls := 0
	opts, targets, clock := options(s, src)
	clock.onSleep = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = func(op, key string) error {
			if key != root+"/_versions/3.manifest" {
				return nil
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if controls++; controls > 1 {
				return &objstore.Error{Status: 500, Err: errors.New("internal")}
			}
			return nil
		}
		// only the manifest is left as control
		delete(s.answer, root+"/data/a")
		delete(s.answer, root+"/data/c")
	}
	out, err := Look(t.Context(), targets, opts)
	if err != nil {
		t.Fatal(err)
	}
	if f := out.Findings[0]; f.Verdict != reconcile.Undecided || *f.Reason != reconcile.ReasonControlsFailed {
		t.Errorf("verdict %v, want undecided by controls", f.Verdict)
	}
	if controls != 2 {
		t.Errorf("the control was asked %d times, want before and after", controls)
	}
}

func TestAnInterruptedPassDecidesNothingMore(t *testing.T) {
	t.Parallel()
	s := newScripted()
	src := table(s)
	delete(s.answer, root+"/data/b")
	opts, targets, clock := options(s, src)
	cause := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	clock.onSleep = func() { cancel(cause) }
	out, err := Look(ctx, targets, opts)
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(out.Interrupted, cause) {
		t.Errorf("interrupted = %v", out.Interrupted)
	}
	if len(out.Findings) != 1 || out.Findings[0].Verdict != reconcile.Undecided || out.Findings[0].ConfirmedAt != nil {
		t.Errorf("findings %+v", out.Findings)
	}
}

func TestATargetThatHangsEndsByItsTimeAndHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScripted()
		sick, well := table(s), table(s)
		sick.target.Name, sick.target.Location = "table:sick", at("sick.lance")
		sick.refs = nil
		for range 100 {
			r := dataRef("x", 100)
			r.Location, r.Base = at("sick.lance/data/x"), at("sick.lance")
			sick.refs = append(sick.refs, r)
		}
		hang := hanging{scripted: s, key: "sick.lance/data/x"}
		opts, targets, _ := options(s, sick, well)
		opts.Stores = hang
		var mu sync.Mutex
		doneAt := map[string]time.Duration{}
		start := time.Now()
		opts.Sink = sinkFunc(func(r reconcile.TargetResult) {
			mu.Lock()
			defer mu.Unlock()
			doneAt[r.Target] = time.Since(start)
		})
		out, err := Look(t.Context(), targets, opts)
		if err != nil {
			t.Fatal(err)
		}
		if doneAt["table:t"] != 0 {
			t.Errorf("the healthy target was held up for %v", doneAt["table:t"])
		}
		i := slices.IndexFunc(out.Targets, func(r reconcile.TargetResult) bool { return r.Target == "table:sick" })
		if r := out.Targets[i]; r.State != reconcile.StateIncomplete || *r.Reason != reconcile.ReasonTargetTimeout {
			t.Errorf("sick target: %v %v", r.State, *r.Reason)
		}
		if out.Exit() != reconcile.ExitIncomplete {
			t.Errorf("exit %d", out.Exit())
		}
	})
}

// hanging answers nothing for one key until the context ends.
type hanging struct {
	*scripted
	key string
}

func (h hanging) Reader(context.Context, objstore.Location) (objstore.Reader, error) { return h, nil }
func (h hanging) Stat(ctx context.Context, l objstore.Location) (objstore.Attrs, error) {
	if l.Key == h.key {
		<-ctx.Done()
		return objstore.Attrs{}, &objstore.Error{Op: "stat", Location: l, Err: ctx.Err()}
	}
	return h.scripted.Stat(ctx, l)
}

type sinkFunc func(reconcile.TargetResult)

func (sinkFunc) References(context.Context, []Seen) error                   { return nil }
func (sinkFunc) WantsReferences() bool                                      { return false }
func (sinkFunc) Findings(context.Context, []reconcile.Finding) error        { return nil }
func (f sinkFunc) Target(_ context.Context, r reconcile.TargetResult) error { f(r); return nil }

func TestWideDamageDropsNothing(t *testing.T) {
	t.Parallel()
	s := newScripted()
	var sources []*fakeSource
	for i := range 3 {
		src := table(s)
		src.target.Name = string(rune('a' + i))
		src.propose = func(fs []reconcile.Finding) []reconcile.PlanAction {
			fs[0].ProposedAction = reconcile.ActionDropFragment
			return []reconcile.PlanAction{{Target: src.target.Name, Action: reconcile.ActionDropFragment, Fragments: []reconcile.PlanFragment{{ID: 1, LiveRows: reconcile.Ptr(int64(8))}}}}
		}
		sources = append(sources, src)
	}
	delete(s.answer, root+"/data/b")
	for _, c := range []struct {
		name    string
		limit   func(*reconcile.Limits)
		actions int
	}{
		{"within every limit", func(*reconcile.Limits) {}, 3},
		{"too many targets", func(l *reconcile.Limits) { l.MaxPassTargets = 2 }, 0},
		{"too many fragments", func(l *reconcile.Limits) { l.MaxPassFragments = 2 }, 0},
		{"too many rows", func(l *reconcile.Limits) { l.MaxPassRows = 23 }, 0},
		{"just enough rows", func(l *reconcile.Limits) { l.MaxPassRows = 24 }, 3},
	} {
		opts, targets, _ := options(s, sources...)
		c.limit(&opts.Policy.Limits)
		out, err := Look(t.Context(), targets, opts)
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Actions) != c.actions {
			t.Errorf("%s: %d actions, want %d", c.name, len(out.Actions), c.actions)
		}
		for _, f := range out.Findings {
			if over := slices.Contains(f.BlockedBy, reconcile.BlockedOverLimit); over != (c.actions == 0) {
				t.Errorf("%s: blocked by %v", c.name, f.BlockedBy)
			}
		}
	}
}

func TestMetadataFindings(t *testing.T) {
	t.Parallel()
	trace := func(src *fakeSource) reconcile.Finding {
		f := reconcile.NewFinding(src.target, reconcile.Reference{Role: reconcile.RoleManifest, Path: "_transactions/3-x.txn", Location: at("x"), LiveRows: -1, PhysicalRows: -1}, time.Time{})
		f.Reason = reconcile.Ptr(reconcile.ReasonHigherVersionTrace)
		return f
	}
	t.Run("a trace seen twice leaves the newest version in doubt", func(t *testing.T) {
		s := newScripted()
		src := table(s)
		src.facts.Findings = []reconcile.Finding{trace(src)}
		opts, targets, _ := options(s, src)
		out, _ := Look(t.Context(), targets, opts)
		if out.Exit() != reconcile.ExitIncomplete || len(out.Findings) != 1 {
			t.Errorf("exit %d, findings %v", out.Exit(), out.Findings)
		}
	})
	t.Run("a trace seen once is a writer at work", func(t *testing.T) {
		s := newScripted()
		src := table(s)
		src.facts.Findings = []reconcile.Finding{trace(src)}
		src.rev = func([]reconcile.Reference) (reconcile.Revisit, error) { return reconcile.Revisit{Version: 4}, nil }
		opts, targets, _ := options(s, src)
		out, _ := Look(t.Context(), targets, opts)
		if out.Exit() != reconcile.ExitClean || len(out.Findings) != 0 {
			t.Errorf("exit %d, findings %v", out.Exit(), out.Findings)
		}
	})
	t.Run("no target at all is a failure, not a success", func(t *testing.T) {
		s := newScripted()
		src := table(s)
		src.facts = reconcile.Facts{Absent: true}
		opts, targets, _ := options(s, src)
		out, _ := Look(t.Context(), targets, opts)
		if out.Exit() != reconcile.ExitFailed {
			t.Errorf("exit %d", out.Exit())
		}
	})
	t.Run("a pending generation that is not looked at is incomplete", func(t *testing.T) {
		s := newScripted()
		src := table(s)
		src.facts.NotChecked = []reconcile.NotChecked{{Role: reconcile.RoleWALGeneration, Reason: "x"}}
		opts, targets, _ := options(s, src)
		out, _ := Look(t.Context(), targets, opts)
		if out.Exit() != reconcile.ExitIncomplete {
			t.Errorf("exit %d", out.Exit())
		}
	})
}
