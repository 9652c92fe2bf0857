package pass

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/mend"
)

// attempts is how often the object is remembered to have failed.
func (p *place) attempts(f reconcile.Finding) int64 {
	p.t.Helper()
	state, err := p.ledger.RefetchState(p.t.Context(), []string{f.FindingID})
	if err != nil {
		p.t.Fatal(err)
	}
	return state[f.FindingID].Attempts
}

// wrong makes an older version of a blob that is as long as it must be and is not it,
// and hides it behind a delete marker.
func (p *place) wrong(key string) {
	p.gone(key)
	p.store.Put(p.at(key), bytes.Repeat([]byte("x"), len(content(key))))
	p.store.Remove(p.at(key))
}

// What an interlock refused has not failed: as soon as what it asks for is there, the
// next pass does it.
func TestARefusalToLoseBytesDelaysNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false, "a")
	p.store.Put(p.at("a"), []byte("short"))
	p.clock.now = p.clock.now.Add(24 * 3600e9)
	x := newPeer("x")
	x.has["a"] = content("a")
	p.peers = []reconcile.Peer{x}
	out := p.pass()
	if d := cmp.Diff([]string{"a refused"}, p.states(out)); d != "" {
		t.Fatal(d)
	}
	f := finding(t, out, "a")
	if !slices.Equal(f.BlockedBy, []string{reconcile.BlockedReplaceWouldLose}) || p.attempts(f) != 0 {
		t.Errorf("blocked by %q, %d failed attempts", f.BlockedBy, p.attempts(f))
	}
	if e := deref(out.Repairs[0].Error); strings.Count(e, reconcile.BlockedReplaceWouldLose) != 1 {
		t.Errorf("the error is %q", e)
	}
	// What the user was told to set.
	p.mend.Mender = mend.New(mend.Options{Writer: p.writer, Allowed: []objstore.Location{collection}, Quarantine: objstore.Location{Scheme: "mem", Bucket: "q"}, Dir: t.TempDir(), Max: 1 << 20})
	if d := cmp.Diff([]string{"a applied"}, p.states(p.pass())); d != "" {
		t.Error(d)
	}
	p.right("a")
}

func TestARestoreThatFailedWaitsForItsNextAttempt(t *testing.T) {
	t.Parallel()
	for _, present := range []bool{false, true} {
		p := newPlace(t, true, "a")
		p.wrong("a")
		if present {
			p.store.Put(p.at("a"), []byte("short"))
			p.clock.now = p.clock.now.Add(24 * 3600e9)
		}
		first := p.pass()
		if n := p.attempts(finding(t, first, "a")); len(first.Repairs) != 1 || n != 1 {
			t.Fatalf("the first pass: %+v, %d failed attempts", first.Repairs, n)
		}
		out := p.pass()
		f := finding(t, out, "a")
		if len(out.Repairs) != 0 || f.ProposedAction != reconcile.ActionRestore || !slices.Equal(f.BlockedBy, []string{reconcile.BlockedCoolingDown}) || f.RetryAt == nil {
			t.Errorf("at once: %+v, %s, blocked by %q until %v", out.Repairs, f.ProposedAction, f.BlockedBy, f.RetryAt)
		}
		if out.Exit() != reconcile.ExitDivergence {
			t.Errorf("exit %d", out.Exit())
		}
		for name, opts := range map[string]func(*Options){
			"by name":  func(o *Options) { o.Recall.AskAgain = true },
			"when due": func(o *Options) { o.Recall.Memory = due{p.ledger} },
		} {
			p.opts = opts
			if out = p.pass(); len(out.Repairs) != 1 || slices.Contains(finding(t, out, "a").BlockedBy, reconcile.BlockedCoolingDown) {
				t.Errorf("%s: %+v", name, out.Repairs)
			}
		}
		if n := p.attempts(f); n != 3 {
			t.Errorf("%d failed attempts", n)
		}
	}
}

// What is remembered of a peer is what it said, until it may be asked again.
func TestWhatIsSaidOfPeersWhileAnObjectWaits(t *testing.T) {
	t.Parallel()
	has := func(p *fakePeer) { p.has["a"] = content("a") }
	not := func(*fakePeer) {}
	silent := func(p *fakePeer) { p.err["a"] = errPeerDown }
	no, both := []string{}, []string{"x", "y"}
	const cools = reconcile.BlockedCoolingDown
	for _, c := range []struct {
		name string
		x, y func(*fakePeer)
		want said
	}{
		{"a copy that nothing proves", has, not, said{"missing", both, []string{"x"}, "refetch", []string{cools}, 0, 0}},
		{"a copy that nothing proves, and silence", has, silent, said{"missing", []string{"x"}, []string{"x"}, "refetch", []string{cools}, 0, 0}},
		{"silence alone", not, silent, said{"missing", []string{"x"}, no, "none", []string{open + "y"}, 0, 0}},
		{"two that say no", not, not, said{"lost", both, no, "none", no, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, false, "a")
			p.recs.set("a", "")
			p.gone("a")
			x, y := newPeer("x"), newPeer("y")
			c.x(x)
			c.y(y)
			p.peers = []reconcile.Peer{x, y}
			p.pass()
			before := x.requests() + y.requests()
			for range 2 { // what is remembered stays so
				out := p.pass()
				if d := cmp.Diff(c.want, tells(finding(t, out, "a"))); d != "" {
					t.Error(d)
				}
				if n := x.requests() + y.requests() - before; n != 0 || len(out.Repairs) != 0 {
					t.Errorf("%d requests, repairs %+v", n, out.Repairs)
				}
			}
		})
	}
}

// A file that could be dropped is asked for in each pass, and while a peer has a copy it
// is neither dropped nor fetched before the next attempt is due.
func TestAFileThatCouldBeDroppedWaitsWithAPeersCopy(t *testing.T) {
	t.Parallel()
	s := newScripted()
	src := table(s)
	delete(s.answer, root+"/data/b")
	x := newPeer("x")
	x.etag = tagOf
	o, targets, _ := options(s, src)
	p := newPlace(t, false)
	p.look(t.Context())
	o.Recall = p.options(p.begun[0]).Recall
	o.Peers = func(reconcile.Target) []reconcile.Peer { return []reconcile.Peer{x} }
	look := func() reconcile.Finding {
		out, err := Look(t.Context(), targets, o)
		if err != nil {
			t.Fatal(err)
		}
		return finding(t, out, "data/b")
	}
	x.has["data/b"] = []byte("a copy")
	first := look()
	if len(first.PeersHaving) != 1 || first.RetryAt != nil {
		t.Fatalf("%q have it, blocked by %q", first.PeersHaving, first.BlockedBy)
	}
	fail := func(disproved map[string]string) {
		if _, err := p.ledger.RefetchFailed(t.Context(), ledger.DefaultRefetch(), ledger.RefetchFailure{FindingID: first.FindingID, Target: targets[0].Location.Canonical(), Disproved: disproved, Text: "no"}); err != nil {
			t.Fatal(err)
		}
	}
	fail(nil)
	if f := look(); !slices.Equal(f.BlockedBy, []string{reconcile.BlockedCoolingDown}) || f.RetryAt == nil || f.Verdict != reconcile.Missing || len(f.PeersHaving) != 1 {
		t.Errorf("a copy that failed: %s, %q have it, blocked by %q", f.Verdict, f.PeersHaving, f.BlockedBy)
	}
	// Another copy than the one that was disproved is news.
	fail(map[string]string{"x": disproof(first.Ref, tagOf([]byte("the copy before")))})
	if f := look(); len(f.BlockedBy) != 0 || len(f.PeersHaving) != 1 {
		t.Errorf("another copy: %q have it, blocked by %q", f.PeersHaving, f.BlockedBy)
	}
	x.has = map[string][]byte{}
	if f := look(); f.Verdict != reconcile.Lost || len(f.BlockedBy) != 0 {
		t.Errorf("no copy any more: %s, blocked by %q", f.Verdict, f.BlockedBy)
	}
}

// Where nothing recorded proves a copy, older versions do not keep peers from being
// asked: two that agree bring the object back.
func TestPeersAreAskedForWhatNoVersionAloneBringsBack(t *testing.T) {
	t.Parallel()
	for _, both := range []bool{false, true} {
		p := newPlace(t, true, "a")
		p.recs.set("a", "")
		p.store.Remove(p.at("a"))
		x, y := newPeer("x"), newPeer("y")
		x.has["a"] = content("a")
		if both {
			y.has["a"] = content("a")
		}
		p.peers = []reconcile.Peer{x, y}
		out := p.pass()
		f := finding(t, out, "a")
		if both {
			if f.ProposedAction != reconcile.ActionRefetch || !slices.Contains(p.states(out), "a applied") {
				t.Errorf("two have it: %s blocked by %q, repairs %+v", f.ProposedAction, f.BlockedBy, out.Repairs)
			}
			p.right("a")
			continue
		}
		if f.Verdict != reconcile.Recoverable || f.ProposedAction != reconcile.ActionRestore || !slices.Equal(f.BlockedBy, []string{reconcile.BlockedReplaceUnproven}) || len(out.Repairs) != 0 || !slices.Equal(f.PeersAsked, []string{"x", "y"}) {
			t.Errorf("one has it: %s, %s blocked by %q, asked %q, repairs %+v", f.Verdict, f.ProposedAction, f.BlockedBy, f.PeersAsked, out.Repairs)
		}
	}
}
