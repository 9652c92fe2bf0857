package mend_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/faultstore"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/mend"
)

var errLost = errors.New("connection reset")

func TestAnAbsentObjectIsCreated(t *testing.T) {
	t.Parallel()
	for name, versions := range map[string]bool{"with versions": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, versions)
			r.peers(has("p", good))
			r.is(r.mend(t.Context()), mend.Restored, "")
			r.wrote("create root/a")
			r.holds(good)
			if r.asked == 0 {
				t.Error("the metadata was not asked again")
			}
		})
	}
}

func TestOverADeleteMarker(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	r.store.Put(object, bad)
	r.store.Remove(object)
	r.peers(has("p", good))
	r.is(r.mend(t.Context()), mend.Restored, "")
	r.wrote("overmarker root/a v2")
	if d := cmp.Diff([]string{string(good), "marker", string(bad)}, r.versions(object)); d != "" {
		t.Error(d)
	}
}

func TestAMarkerThatIsNotTheNewestAnyMoreIsAConflict(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	r.store.Put(object, bad)
	r.store.Remove(object)
	r.peers(has("p", good))
	r.opts.Writer = func(context.Context, objstore.Location) (objstore.Writer, error) {
		return &before{Store: r.fault, do: func() { r.store.Put(object, bad) }}, nil
	}
	r.is(r.mend(t.Context()), mend.Conflict, "")
	r.holds(bad)
}

// before does something just before each write.
type before struct {
	*faultstore.Store
	do func()
}

func (b *before) Create(ctx context.Context, l objstore.Location, body io.Reader, n int64) (objstore.Attrs, error) {
	b.do()
	return b.Store.Create(ctx, l, body, n)
}

func (b *before) Replace(ctx context.Context, l objstore.Location, etag string, body io.Reader, n int64) (objstore.Attrs, error) {
	b.do()
	return b.Store.Replace(ctx, l, etag, body, n)
}

func (b *before) CreateOverMarker(ctx context.Context, l objstore.Location, id string, body io.Reader, n int64) (objstore.Attrs, error) {
	b.do()
	return b.Store.CreateOverMarker(ctx, l, id, body, n)
}

func TestWhatTheMetadataNoLongerSaysIsNotWritten(t *testing.T) {
	t.Parallel()
	for name, present := range map[string]bool{"absent": false, "present": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, true)
			want := []byte(nil)
			if present {
				r.damaged(bad)
				want = bad
			}
			r.peers(has("p", good))
			r.named = func() (bool, error) { return false, nil }
			r.is(r.mend(t.Context()), mend.Refused, mend.ReasonSuperseded)
			r.named = func() (bool, error) { return false, errDown }
			res := r.mend(t.Context())
			r.is(res, mend.Failed, "")
			if !errors.Is(res.Err, errDown) {
				t.Error(res.Err)
			}
			r.wrote()
			r.holds(want)
		})
	}
}

func TestWhenTheRecordChangesWhileOldBytesAreSavedNothingIsReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.opts.Quarantine = quarantine
	r.damaged(bad)
	r.peers(has("p", good))
	r.named = func() (bool, error) { return len(r.writes()) == 0, nil }
	r.is(r.mend(t.Context()), mend.Refused, mend.ReasonSuperseded)
	r.holds(bad)
}

func TestAnObjectThatCameBackIsLeftAlone(t *testing.T) {
	t.Parallel()
	for _, v := range []reconcile.Verdict{reconcile.Missing, reconcile.Recoverable, reconcile.Lost} {
		t.Run(v.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, true)
			r.damaged(bad)
			r.job.Finding.Verdict = v
			r.peers(has("p", good))
			r.is(r.mend(t.Context()), mend.Refused, mend.ReasonSuperseded)
			r.wrote()
			r.holds(bad)
		})
	}
}

func TestADamagedObjectThatWentInTheMeantimeIsFilled(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.damaged(bad)
	r.store.Remove(object)
	r.peers(has("p", good))
	r.is(r.mend(t.Context()), mend.Restored, "")
	r.wrote("create root/a")
}

func TestWhenTheObjectCannotBeLookedAtNothingIsWritten(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]faultstore.Effect{
		"no answer": faultstore.Fail(errLost), "denied": faultstore.Status(403, "AccessDenied"), "throttled": faultstore.Status(503, "SlowDown"),
		"no bucket": faultstore.Status(404, "NoSuchBucket"), "archived": faultstore.Status(403, "InvalidObjectState"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			r.fault.Add(faultstore.Rule{Op: "probe", Effect: e})
			r.peers(has("p", good))
			r.is(r.mend(t.Context()), mend.Failed, "")
			r.wrote()
		})
	}
}

// Each case takes one thing away that replacing needs.
func TestWhatReplacingNeeds(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		change func(r *rig)
		reason string // "" = it is replaced
	}{
		{"everything is there", func(*rig) {}, ""},
		{"it is another object than was seen", func(r *rig) { r.store.Put(object, []byte("newer")); r.now = r.now.Add(2 * pendingMaxAge) }, mend.ReasonSuperseded},
		{"the look did not learn which object it saw", func(r *rig) { r.job.Finding.ObservedETag = "" }, mend.ReasonSuperseded},
		{"the store does not tell which object it is", func(r *rig) { r.store.Update(object, func(a *objstore.Attrs) { a.ETag = "" }) }, mend.ReasonSuperseded},
		{"neither tells", func(r *rig) {
			r.job.Finding.ObservedETag = ""
			r.store.Update(object, func(a *objstore.Attrs) { a.ETag = "" })
		}, mend.ReasonSuperseded},
		{"it is young", func(r *rig) { r.now = r.now.Add(-pendingMaxAge - time.Second) }, reconcile.BlockedReplaceWouldLose},
		{"it is just old enough", func(r *rig) { r.now = r.now.Add(-pendingMaxAge) }, ""},
		{"its age is not told", func(r *rig) { r.store.Update(object, func(a *objstore.Attrs) { a.ModTime = time.Time{} }) }, reconcile.BlockedReplaceWouldLose},
		{"it comes from the future", func(r *rig) { r.store.Update(object, func(a *objstore.Attrs) { a.ModTime = r.now.Add(time.Hour) }) }, reconcile.BlockedReplaceWouldLose},
		{"the record proves nothing", func(r *rig) { r.unrecorded() }, reconcile.BlockedReplaceUnproven},
	}
	for _, c := range cases {
		for name, versions := range map[string]bool{" with versions": true, " with a quarantine": false} {
			t.Run(c.name+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, versions)
				if !versions {
					r.opts.Quarantine = quarantine
				}
				r.damaged(bad)
				c.change(r)
				was, _ := r.store.Data(object)
				r.peers(has("p", good))
				res := r.mend(t.Context())
				if c.reason != "" {
					r.is(res, mend.Refused, c.reason)
					r.wrote()
					r.holds(was)
					return
				}
				r.is(res, mend.Restored, "")
				r.holds(good)
				if versions {
					r.wrote("replace root/a")
					if d := cmp.Diff([]string{string(good), string(bad)}, r.versions(object)); d != "" {
						t.Error(d)
					}
				}
			})
		}
	}
}

func TestAgeIsTheStoresMatter(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	r.now = time.Now().Add(-1000 * time.Hour) // the store's clock is far behind ours
	r.damaged(bad)
	r.now = r.now.Add(-pendingMaxAge - time.Minute)
	r.peers(has("p", good))
	r.is(r.mend(t.Context()), mend.Refused, reconcile.BlockedReplaceWouldLose)
}

// kept are the objects in quarantine.
func (r *rig) kept() (out []string) {
	for _, l := range r.store.Locations() {
		if _, below := l.Rel(quarantine); below {
			b, _ := r.store.Data(l)
			out = append(out, string(b))
		}
	}
	return out
}

func TestOldBytesAreKeptBeforeTheyAreReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.opts.Quarantine = quarantine
	r.damaged(bad)
	r.peers(has("p", good))
	r.opts.Writer = func(context.Context, objstore.Location) (objstore.Writer, error) {
		return &before{Store: r.fault, do: func() {
			if n := len(r.writes()); n == 1 && !slices.Equal(r.kept(), []string{string(bad)}) {
				t.Errorf("at the second write %q is kept", r.kept())
			}
		}}, nil
	}
	r.is(r.mend(t.Context()), mend.Restored, "")
	w := r.writes()
	if len(w) != 2 || !strings.HasPrefix(w[0], "create kept/") || w[1] != "replace root/a" {
		t.Fatalf("writes %q", w)
	}
	r.holds(good)

	// The same damage again finds its bytes in quarantine.
	r.damaged(bad)
	r.is(r.mend(t.Context()), mend.Restored, "")
	if !slices.Equal(r.kept(), []string{string(bad)}) {
		t.Errorf("%q is kept", r.kept())
	}
	// Other damage of the same object is kept beside it.
	r.damaged([]byte("more"))
	r.is(r.mend(t.Context()), mend.Restored, "")
	if got := r.kept(); len(got) != 2 || !slices.Contains(got, "more") {
		t.Errorf("%q is kept", got)
	}
}

func TestBytesThatCannotBeKeptAreNotReplaced(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name  string
		where objstore.Location
		rules []faultstore.Rule
		setup func(*rig)
	}{
		{"no quarantine is configured", objstore.Location{}, nil, nil},
		{"the quarantine refuses", quarantine, []faultstore.Rule{{Op: "create", Key: "kept", Effect: faultstore.Status(403, "AccessDenied")}}, nil},
		{"the quarantine fails", quarantine, []faultstore.Rule{{Op: "create", Key: "kept", Effect: faultstore.Status(500, "InternalError")}}, nil},
		{"the old bytes break off", quarantine, []faultstore.Rule{{Op: "get", Key: "root/a", Effect: faultstore.ShortBody(4)}}, nil},
		{"the old bytes cannot be read", quarantine, []faultstore.Rule{{Op: "get", Key: "root/a", Effect: faultstore.Status(503, "SlowDown")}}, nil},
		{"what was kept cannot be read again", quarantine, []faultstore.Rule{{Op: "get", Key: "kept", Effect: faultstore.Status(503, "SlowDown")}}, nil},
		{"the quarantine says that it holds them, and does not", quarantine, []faultstore.Rule{{Op: "create", Key: "kept", Effect: faultstore.Status(412, "PreconditionFailed")}}, nil},
		{"they are larger than what may be staged", quarantine, nil, func(r *rig) { r.opts.Max = int64(len(good)); r.damaged(append(bad, bad...)) }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			r.opts.Quarantine = c.where
			r.damaged(bad)
			if c.setup != nil {
				c.setup(r)
			}
			was, _ := r.store.Data(object)
			r.fault.Add(c.rules...)
			r.peers(has("p", good))
			r.is(r.mend(t.Context()), mend.Refused, reconcile.BlockedReplaceWouldLose)
			for _, w := range r.writes() {
				if strings.HasPrefix(w, "replace") {
					t.Errorf("replaced all the same: %q", r.writes())
				}
			}
			r.holds(was)
		})
	}
}

func TestAQuarantineWhoseReplyIsLostHoldsTheBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.opts.Quarantine = quarantine
	r.damaged(bad)
	r.fault.Add(faultstore.Rule{Op: "create", Key: "kept", Effect: faultstore.LostReply(errLost)})
	r.peers(has("p", good))
	r.is(r.mend(t.Context()), mend.Restored, "")
	r.holds(good)
}

func TestABucketWhoseVersionsCannotBeListedNeedsAQuarantine(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	r.damaged(bad)
	r.fault.Add(faultstore.Rule{Op: "versions", Effect: faultstore.Status(403, "AccessDenied")})
	r.peers(has("p", good))
	r.is(r.mend(t.Context()), mend.Refused, reconcile.BlockedReplaceWouldLose)
	r.opts.Quarantine = quarantine
	r.is(r.mend(t.Context()), mend.Restored, "")
	if !slices.Equal(r.kept(), []string{string(bad)}) {
		t.Errorf("%q is kept", r.kept())
	}
}

func TestWhatALostReplyMeansIsReadBack(t *testing.T) {
	t.Parallel()
	server := &objstore.Error{Op: "create", Status: 500, Err: errors.New("internal error")}
	down := faultstore.Rule{Op: "get", Key: "root/a", Effect: faultstore.Status(503, "SlowDown")}
	cases := []struct {
		name    string
		present bool
		rules   []faultstore.Rule
		want    mend.Outcome
		holds   []byte
	}{
		{"stored, and the answer was lost", false, []faultstore.Rule{{Op: "create", Effect: faultstore.LostReply(server)}}, mend.Restored, good},
		{"stored, and the answer says that it was there", false, []faultstore.Rule{{Op: "create", Effect: faultstore.LostReply(objstore.ErrExist)}}, mend.Restored, good},
		{"not stored", false, []faultstore.Rule{{Op: "create", Effect: faultstore.Fail(server)}}, mend.Failed, nil},
		{"denied", false, []faultstore.Rule{{Op: "create", Effect: faultstore.Status(403, "AccessDenied")}}, mend.Failed, nil},
		{"no answer to either", false, []faultstore.Rule{{Op: "create", Effect: faultstore.LostReply(server)}, down}, mend.Uncertain, good},
		{"stored, and not to be read", false, []faultstore.Rule{down}, mend.Uncertain, good},
		{"replaced, and the answer was lost", true, []faultstore.Rule{{Op: "replace", Effect: faultstore.LostReply(errLost)}}, mend.Restored, good},
		{"not replaced", true, []faultstore.Rule{{Op: "replace", Effect: faultstore.Fail(errLost)}}, mend.Failed, bad},
		{"changed before it was replaced", true, []faultstore.Rule{{Op: "replace", Effect: faultstore.Status(412, "PreconditionFailed")}}, mend.Conflict, bad},
		{"gone before it was replaced", true, []faultstore.Rule{{Op: "replace", Effect: faultstore.NotExist()}}, mend.Conflict, bad},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, true)
			if c.present {
				r.damaged(bad)
			}
			r.fault.Add(c.rules...)
			r.peers(has("p", good))
			r.is(r.mend(t.Context()), c.want, "")
			r.holds(c.holds)
			if n := len(r.writes()); n != 1 {
				t.Errorf("%d writes: %q", n, r.writes())
			}
		})
	}
}

func TestARivalWhoWasFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bytes []byte
		want  mend.Outcome
	}{"with the same bytes did our work": {good, mend.Restored}, "with other bytes is a conflict": {bad, mend.Conflict}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			r.opts.Writer = func(context.Context, objstore.Location) (objstore.Writer, error) {
				return &before{Store: r.fault, do: func() { r.store.Put(object, c.bytes) }}, nil
			}
			r.peers(has("p", good))
			r.is(r.mend(t.Context()), c.want, "")
			r.holds(c.bytes)

			r = newRig(t, true)
			r.damaged([]byte("damaged"))
			r.opts.Writer = func(context.Context, objstore.Location) (objstore.Writer, error) {
				return &before{Store: r.fault, do: func() { r.store.Put(object, c.bytes) }}, nil
			}
			r.peers(has("p", good))
			r.is(r.mend(t.Context()), c.want, "")
			r.holds(c.bytes)
		})
	}
}

func TestAStoreThatSaysYesAndHoldsNothingIsUncertain(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.opts.Writer = func(context.Context, objstore.Location) (objstore.Writer, error) { return liar{r.fault}, nil }
	r.peers(has("p", good))
	r.is(r.mend(t.Context()), mend.Uncertain, "")
}

type liar struct{ *faultstore.Store }

func (liar) Create(context.Context, objstore.Location, io.Reader, int64) (objstore.Attrs, error) {
	return objstore.Attrs{}, nil
}

var errStop = errors.New("told to stop")

func TestWhenTheContextEndsNoWriteBegins(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		when func(r *rig, stop func())
	}{
		{"before the metadata is asked", func(_ *rig, stop func()) { stop() }},
		{"while the metadata is asked", func(r *rig, stop func()) { r.named = func() (bool, error) { stop(); return true, nil } }},
	}
	for _, c := range cases {
		for name, present := range map[string]bool{" absent": false, " present": true} {
			t.Run(c.name+name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, false)
				r.opts.Quarantine = quarantine
				if present {
					r.damaged(bad)
				}
				r.peers(has("p", good))
				p, res := mend.New(r.opts).Prepare(t.Context(), r.job)
				if p == nil {
					t.Fatal(res.Err)
				}
				defer p.Close()
				ctx, stop := context.WithCancelCause(t.Context())
				c.when(r, func() { stop(errStop) })
				if got := p.Write(ctx); got.Outcome != mend.Failed || got.Err == nil {
					t.Errorf("outcome %d %v", got.Outcome, got.Err)
				}
				r.wrote()
			})
		}
	}
}

func TestWhenTheContextEndsNothingMoreIsFetched(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	ctx, stop := context.WithCancelCause(t.Context())
	q := has("q", good)
	r.peers(&peer{name: "p", fetch: func(int) (io.ReadCloser, objstore.Attrs, error) {
		stop(errStop)
		return io.NopCloser(strings.NewReader(string(good))), objstore.Attrs{Size: int64(len(good))}, nil
	}}, q)
	res := r.mend(ctx)
	if !errors.Is(res.Err, errStop) || q.fetched() != 0 || len(res.SaidNo) != 0 {
		t.Errorf("%v, q was asked %d times, %q said no", res.Err, q.fetched(), res.SaidNo)
	}
	r.wrote()
}

// A write that was sent is awaited and read back, though the context ended in the
// meantime.
func TestAWriteThatWasSentIsAwaited(t *testing.T) {
	t.Parallel()
	for name, present := range map[string]bool{"create": false, "replace": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, true)
			if present {
				r.damaged(bad)
			}
			ctx, stop := context.WithCancelCause(t.Context())
			r.fault.Add(faultstore.Rule{Op: "create,replace", Effect: faultstore.Delay(30 * time.Millisecond)})
			r.opts.Writer = func(context.Context, objstore.Location) (objstore.Writer, error) {
				return &before{Store: r.fault, do: func() { stop(errStop) }}, nil
			}
			r.peers(has("p", good))
			r.is(r.mend(ctx), mend.Restored, "")
			r.holds(good)
		})
	}
}

func TestAQuarantineThatWasSentIsAwaitedAndNothingFollows(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.opts.Quarantine = quarantine
	r.damaged(bad)
	ctx, stop := context.WithCancelCause(t.Context())
	r.fault.Add(faultstore.Rule{Op: "create", Effect: faultstore.Delay(30 * time.Millisecond)})
	r.opts.Writer = func(context.Context, objstore.Location) (objstore.Writer, error) {
		return &before{Store: r.fault, do: func() { stop(errStop) }}, nil
	}
	r.peers(has("p", good))
	if res := r.mend(ctx); res.Outcome == mend.Restored {
		t.Error("replaced after the end")
	}
	if !slices.Equal(r.kept(), []string{string(bad)}) {
		t.Errorf("%q is kept", r.kept())
	}
	r.holds(bad)
}
