package pass

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/faultstore"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

const open = reconcile.BlockedRungOpen

var (
	errPeerDown = errors.New("connection refused")
	errOutside  = fmt.Errorf("peer: %w", reconcile.ErrNotBelow)
)

// said is what a finding tells of its peers.
type said struct {
	Verdict        string
	Asked, Having  []string
	Action         string
	Blocked        []string
	AskedThisPass  int // requests to peers
	AskedAtOnceNew int // requests of a second pass at once
}

func tells(f reconcile.Finding) said {
	return said{Verdict: f.Verdict.String(), Asked: f.PeersAsked, Having: f.PeersHaving, Action: f.ProposedAction.String(), Blocked: f.BlockedBy}
}

// Each case is what two peers say of one blob that is gone, and what is made of it, at
// once and in a pass right after it.
func TestWhatPeersSay(t *testing.T) {
	t.Parallel()
	has := func(p *fakePeer) { p.has["a"] = content("a") }
	not := func(*fakePeer) {}
	fails := func(err error) func(*fakePeer) { return func(p *fakePeer) { p.err["a"] = err } }
	none, both := []string{}, []string{"x", "y"}
	cases := []struct {
		name string
		x, y func(*fakePeer)
		want said
	}{
		{"both say no", not, not, said{"lost", both, none, "none", none, 2, 0}},
		{"one has it", not, has, said{"missing", both, []string{"y"}, "refetch", none, 2, 2}},
		{"both have it", has, has, said{"missing", both, both, "refetch", none, 2, 2}},
		{"one says no and one says nothing", not, fails(errPeerDown), said{"missing", both, none, "none", []string{open + "y"}, 2, 0}},
		{"one has it and one says nothing", has, fails(errPeerDown), said{"missing", both, []string{"x"}, "refetch", none, 2, 2}},
		{"neither says anything", fails(errPeerDown), fails(objstore.ErrDenied), said{"missing", both, none, "none", []string{open + "x", open + "y"}, 2, 0}},
		{"a bucket that is not there is no answer", not, fails(errors.Join(objstore.ErrNotExist, objstore.ErrNoSuchBucket)), said{"missing", both, none, "none", []string{open + "y"}, 2, 0}},
		{"throttling is no answer", not, fails(objstore.ErrThrottled), said{"missing", both, none, "none", []string{open + "y"}, 2, 0}},
		{"one cannot hold it and one says no", fails(errOutside), not, said{"lost", []string{"y"}, none, "none", none, 2, 0}},
		{"neither can hold it", fails(errOutside), fails(errOutside), said{"missing", none, none, "none", none, 2, 2}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, false, "a")
			p.gone("a")
			x, y := newPeer("x"), newPeer("y")
			c.x(x)
			c.y(y)
			p.peers = []reconcile.Peer{x, y}
			requests := func() int { return x.requests() + y.requests() }

			got := tells(finding(t, p.look(t.Context()), "a"))
			got.AskedThisPass = requests()
			second := tells(finding(t, p.look(t.Context()), "a"))
			got.AskedAtOnceNew = requests() - got.AskedThisPass
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			second.AskedThisPass, second.AskedAtOnceNew = got.AskedThisPass, got.AskedAtOnceNew
			if second.Asked = slices.DeleteFunc(second.Asked, func(s string) bool { return !slices.Contains(c.want.Asked, s) }); len(c.want.Blocked) > 0 {
				// Who gave no answer was not asked this time.
				second.Asked = c.want.Asked
			}
			if d := cmp.Diff(c.want, second); d != "" {
				t.Error("at once:", d)
			}
		})
	}
}

func TestWhenPeersAreAskedAgain(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(p *place){
		"when it is asked for":   func(p *place) { p.opts = func(o *Options) { o.Recall.AskAgain = true } },
		"when its time has come": func(p *place) { p.opts = func(o *Options) { o.Recall.Memory = due{p.ledger} } },
		"without a memory":       func(p *place) { p.opts = func(o *Options) { o.Recall = Recall{} } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, false, "a")
			p.gone("a")
			x := newPeer("x")
			p.peers = []reconcile.Peer{x}
			first := p.look(t.Context())
			again(p)
			x.has["a"] = content("a")
			out := p.look(t.Context())
			if f := finding(t, out, "a"); x.requests() != 2 || f.ProposedAction != reconcile.ActionRefetch {
				t.Errorf("%d requests, %s", x.requests(), f.ProposedAction)
			}
			p.opts = nil
			state, err := p.ledger.RefetchState(t.Context(), []string{finding(t, first, "a").FindingID})
			if err != nil || len(state) != 1 {
				t.Fatal(state, err)
			}
			for _, s := range state {
				if s.Attempts != 1 || !slices.Equal(s.PeersSaidNo, []string{"x"}) {
					t.Errorf("remembered: %+v", s)
				}
			}
		})
	}
}

// due says that everything may be asked for again.
type due struct{ *sickLedger }

func (d due) RefetchState(ctx context.Context, ids []string) (map[string]ledger.Refetch, error) {
	m, err := d.Ledger.RefetchState(ctx, ids)
	for id, r := range m {
		r.Due = true
		m[id] = r
	}
	return m, err
}

func TestEachTimeThatAllSayNoTheWaitGrows(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false, "a")
	p.gone("a")
	x := newPeer("x")
	p.peers = []reconcile.Peer{x}
	p.opts = func(o *Options) { o.Recall.Memory = due{p.ledger} }
	var out *Outcome
	for range 3 {
		out = p.look(t.Context())
	}
	state, err := p.ledger.RefetchState(t.Context(), []string{finding(t, out, "a").FindingID})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range state {
		now, _ := p.ledger.Now(t.Context())
		if wait := s.NextAttemptAt.Sub(now); s.Attempts != 3 || wait < 35*time.Minute || wait > 40*time.Minute {
			t.Errorf("%d attempts, the next in %s", s.Attempts, wait)
		}
	}
}

func TestVersionsComeBeforePeers(t *testing.T) {
	t.Parallel()
	t.Run("what a version may bring back no peer is asked for", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, true, "a")
		p.store.Remove(p.at("a"))
		x := newPeer("x")
		p.peers = []reconcile.Peer{x}
		if f := finding(t, p.look(t.Context()), "a"); f.Verdict != reconcile.Recoverable || f.ProposedAction != reconcile.ActionRestore || x.requests() != 0 {
			t.Errorf("%s, %s, %d requests", f.Verdict, f.ProposedAction, x.requests())
		}
	})
	t.Run("while versions are unknown nothing is lost", func(t *testing.T) {
		t.Parallel()
		p := newPlace(t, true, "a")
		p.gone("a")
		p.fault.Add(faultstore.Rule{Op: "versions", Effect: faultstore.Status(403, "AccessDenied")})
		x := newPeer("x")
		p.peers = []reconcile.Peer{x}
		f := finding(t, p.look(t.Context()), "a")
		if d := cmp.Diff(said{"missing", []string{"x"}, []string{}, "none", []string{reconcile.BlockedVersionsUnknown}, 0, 0}, tells(f)); d != "" {
			t.Error(d)
		}
	})
}

// What may still be on its way, is not known, or is no object of ours to write is
// asked of nobody.
func TestWhatPeersAreNotAskedFor(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name string
		role reconcile.Role
		make func(s *scripted, src *fakeSource, o *Options)
		want string
		asks int
	}{
		{"a lost data file is asked for", reconcile.RoleData, nil, "lost", 1},
		{"a lost deletion file is", reconcile.RoleDeletion, nil, "lost", 1},
		{"a lost index file is", reconcile.RoleIndex, nil, "lost", 1},
		{"a lost overlay is", reconcile.RoleOverlay, nil, "lost", 1},
		{"lost row ids are", reconcile.RoleRowIDs, nil, "lost", 1},
		{"a lost sidecar is", reconcile.RoleBlobSidecar, nil, "lost", 1},
		{"a lost file of a generation is", reconcile.RoleWALGeneration, nil, "lost", 1},
		{"a manifest is not", reconcile.RoleManifest, nil, "missing", 0},
		{"a shard manifest is not", reconcile.RoleWALManifest, nil, "missing", 0},
		{"a transaction is not", reconcile.RoleTransaction, nil, "missing", 0},
		{"an entry of a log is not", reconcile.RoleWALGeneration, func(_ *scripted, src *fakeSource, _ *Options) { src.refs[1].Reason = reasonLogEntry }, "missing", 0},
		{"what no old version names is not", reconcile.RoleData, func(_ *scripted, src *fakeSource, _ *Options) { src.older = false }, "pending", 0},
		{"what is denied is not", reconcile.RoleData, func(s *scripted, _ *fakeSource, _ *Options) {
			s.answer[root+"/data/b"] = failing(403, objstore.ErrDenied)
		}, "denied", 0},
		{"what is undecided is not", reconcile.RoleData, func(s *scripted, _ *fakeSource, _ *Options) {
			s.answer[root+"/data/b"] = failing(500, errors.New("internal"))
		}, "undecided", 0},
		{"what is named no more is not", reconcile.RoleData, func(_ *scripted, src *fakeSource, _ *Options) {
			src.rev = func(rs []reconcile.Reference) (reconcile.Revisit, error) {
				return reconcile.Revisit{Named: make([]bool, len(rs))}, nil
			}
		}, "superseded", 0},
		{"what is archived is not", reconcile.RoleData, func(s *scripted, _ *fakeSource, _ *Options) {
			s.answer[root+"/data/b"] = func(string, int) (objstore.Attrs, error) { return objstore.Attrs{Size: 100, Archived: true}, nil }
		}, "archived", 0},
		{"what is of another size is", reconcile.RoleData, func(s *scripted, src *fakeSource, _ *Options) {
			s.present(50, root+"/data/b")
			src.inspect = func(reconcile.Reference) (reconcile.Verdict, string, error) {
				return reconcile.Unreadable, reconcile.ReasonBadFooter, nil
			}
		}, "size_mismatch", 1},
		{"what is whole and recorded wrongly is not", reconcile.RoleData, func(s *scripted, _ *fakeSource, _ *Options) {
			s.present(50, root+"/data/b")
		}, "size_mismatch", 0},
		{"what is unreadable is", reconcile.RoleData, func(s *scripted, src *fakeSource, o *Options) {
			s.answer[root+"/data/b"] = func(op string, _ int) (objstore.Attrs, error) {
				if op == "versions" {
					return objstore.Attrs{}, notFound()
				}
				return objstore.Attrs{Size: 100}, nil
			}
			o.Depth = reconcile.DepthFooter
			src.inspect = func(ref reconcile.Reference) (reconcile.Verdict, string, error) {
				if ref.Path == "data/b" {
					return reconcile.Unreadable, reconcile.ReasonBadFooter, nil
				}
				return reconcile.Present, "", nil
			}
		}, "unreadable", 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScripted()
			src := table(s)
			delete(s.answer, root+"/data/b")
			src.refs[1].Role = c.role
			x := newPeer("x")
			o, targets, _ := options(s, src)
			o.Peers = func(reconcile.Target) []reconcile.Peer { return []reconcile.Peer{x} }
			if c.make != nil {
				c.make(s, src, &o)
			}
			out, err := Look(t.Context(), targets, o)
			if err != nil {
				t.Fatal(err)
			}
			if f := finding(t, out, "data/b"); f.Verdict.String() != c.want || x.asked != c.asks {
				t.Errorf("%s, asked %d times; want %s, %d", f.Verdict, x.asked, c.want, c.asks)
			}
		})
	}
}

// A drop needs today's word of every peer: nothing that was said before counts.
func TestAPeerThatGivesNoAnswerBlocksADropEachTime(t *testing.T) {
	t.Parallel()
	s := newScripted()
	src := table(s)
	delete(s.answer, root+"/data/b")
	x, y := newPeer("x"), newPeer("y")
	o, targets, _ := options(s, src)
	p := newPlace(t, false)
	p.look(t.Context())
	o.Recall = p.options(p.begun[0]).Recall
	o.Peers = func(reconcile.Target) []reconcile.Peer { return []reconcile.Peer{x, y} }
	look := func() reconcile.Finding {
		out, err := Look(t.Context(), targets, o)
		if err != nil {
			t.Fatal(err)
		}
		return finding(t, out, "data/b")
	}
	if f := look(); f.Verdict != reconcile.Lost || len(f.BlockedBy) != 0 {
		t.Errorf("%s, blocked by %q", f.Verdict, f.BlockedBy)
	}
	y.err[""] = errPeerDown
	if f := look(); f.Verdict != reconcile.Missing || !slices.Equal(f.BlockedBy, []string{open + "y"}) {
		t.Errorf("%s, blocked by %q", f.Verdict, f.BlockedBy)
	}
	delete(y.err, "")
	y.has["data/b"] = []byte("it")
	if f := look(); f.Verdict != reconcile.Missing || !slices.Equal(f.PeersHaving, []string{"y"}) {
		t.Errorf("%s, %q have it", f.Verdict, f.PeersHaving)
	}
	if x.asked != 3 || y.asked != 3 {
		t.Errorf("asked %d and %d times", x.asked, y.asked)
	}
}

// tagOf is an ETag that says what the bytes are.
func tagOf(b []byte) string { return sha(b)[:20] }

// What a peer holds and failed its proof is no copy, as long as it is that one and is
// held against the same record.
func TestACopyThatFailedItsProofIsNone(t *testing.T) {
	t.Parallel()
	bad := []byte("no bytes of it")
	cases := []struct {
		name   string
		change func(p *place, x *fakePeer)
		want   said
	}{
		{"the same copy", func(*place, *fakePeer) {}, said{"lost", []string{"x"}, []string{}, "none", []string{}, 0, 0}},
		{"another bad copy", func(_ *place, x *fakePeer) { x.has["a"] = []byte("nor this") }, said{"missing", []string{"x"}, []string{"x"}, "refetch", []string{}, 0, 0}},
		{"the good copy", func(_ *place, x *fakePeer) { x.has["a"] = content("a") }, said{"missing", []string{"x"}, []string{"x"}, "refetch", []string{}, 0, 0}},
		{"a copy without an ETag", func(_ *place, x *fakePeer) { x.etag = nil }, said{"missing", []string{"x"}, []string{"x"}, "refetch", []string{}, 0, 0}},
		{"the record was wrong", func(p *place, _ *fakePeer) { p.recs.set("a", sha(bad)) }, said{"missing", []string{"x"}, []string{"x"}, "refetch", []string{}, 0, 0}},
		{"no answer", func(_ *place, x *fakePeer) { x.err["a"] = errPeerDown }, said{"missing", []string{"x"}, []string{}, "none", []string{open + "x"}, 0, 0}},
		{"another peer has one", func(p *place, _ *fakePeer) {
			y := newPeer("y")
			y.has["a"] = content("a")
			p.peers = append(p.peers, y)
		}, said{"missing", []string{"x", "y"}, []string{"y"}, "refetch", []string{}, 0, 0}},
		{"another peer is silent", func(p *place, _ *fakePeer) {
			y := newPeer("y")
			y.err["a"] = errPeerDown
			p.peers = append(p.peers, y)
		}, said{"missing", []string{"x", "y"}, []string{}, "none", []string{open + "y"}, 0, 0}},
		{"the ledger knows of another peer's", func(p *place, _ *fakePeer) {
			y := newPeer("y")
			y.etag, y.has["a"] = tagOf, bad
			p.peers = []reconcile.Peer{y}
		}, said{"missing", []string{"y"}, []string{"y"}, "refetch", []string{}, 0, 0}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, false, "a")
			p.gone("a")
			x := newPeer("x")
			x.etag, x.has["a"] = tagOf, bad
			p.peers = []reconcile.Peer{x}
			if d := cmp.Diff(said{"missing", []string{"x"}, []string{"x"}, "refetch", []string{}, 0, 0}, tells(finding(t, p.pass(), "a"))); d != "" {
				t.Fatal("first:", d)
			}
			c.change(p, x)
			p.opts = func(o *Options) { o.Recall.AskAgain = true }
			if d := cmp.Diff(c.want, tells(finding(t, p.pass(), "a"))); d != "" {
				t.Error(d)
			}
		})
	}
}

// Once all count as having none, what was refused stays refused, however often the
// object is asked for.
func TestADisprovedCopyIsFetchedOnceOnly(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false, "a")
	p.gone("a")
	x := newPeer("x")
	x.etag, x.has["a"] = tagOf, []byte("no bytes of it")
	p.peers = []reconcile.Peer{x}
	p.opts = func(o *Options) { o.Recall.Memory = due{p.ledger} }
	for range 3 {
		p.pass()
	}
	if x.fetched["a"] != 2 || x.asked != 3 {
		t.Errorf("fetched %d times, asked %d", x.fetched["a"], x.asked)
	}
	x.has["a"] = content("a")
	p.pass()
	p.right("a")
}

// Where a copy is told by more than one ETag, or by none, the rung stays open.
func TestWhenADisprovedCopyIsStillOne(t *testing.T) {
	t.Parallel()
	const web, s3 = "https://mirror/x/", "s3://dr/"
	blob, data := reconcile.Reference{Role: reconcile.RoleBlob, Size: 5}, reconcile.Reference{Role: reconcile.RoleData, Size: 5, PhysicalRows: 7}
	twice := data
	twice.Alternates = []reconcile.Place{{}}
	for _, c := range []struct {
		name, peer string
		ref        reconcile.Reference
		want       bool
	}{
		{"a data file at a store", s3, data, true},
		{"a blob at a store", s3, blob, true},
		{"a blob at a web server", web, blob, true},
		{"a file that may lie at two places", s3, twice, false},
	} {
		s := &suspect{ref: c.ref, find: reconcile.Finding{Role: c.ref.Role}}
		past := map[string]string{c.peer: disproof(c.ref, "e")}
		if got := s.disproved(c.peer, "e", past); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		other := c.ref
		other.Size++
		for what, past := range map[string]map[string]string{"no memory": nil, "another ETag": {c.peer: disproof(c.ref, "f")}, "another record": {c.peer: disproof(other, "e")},
			"another peer's": {"s3://else/": disproof(c.ref, "e")}} {
			if s.disproved(c.peer, "e", past) {
				t.Errorf("%s, %s: disproved", c.name, what)
			}
		}
		if s.disproved(c.peer, "", map[string]string{c.peer: disproof(c.ref, "")}) {
			t.Errorf("%s: disproved without an ETag", c.name)
		}
	}
}

// hangingPeer is a peer that answers nobody before the context ends.
type hangingPeer struct{ *fakePeer }

func (h hangingPeer) Ask(ctx context.Context, _ reconcile.Reference) (objstore.Attrs, error) {
	<-ctx.Done()
	return objstore.Attrs{}, context.Cause(ctx)
}

func TestPeersThatTheTimeDoesNotReachForSaidNothing(t *testing.T) {
	t.Parallel()
	keys := []string{"a", "b", "c", "d"}
	p := newPlace(t, false, keys...)
	p.gone(keys...)
	x, y := newPeer("x"), hangingPeer{newPeer("y")}
	p.peers = []reconcile.Peer{x, y}
	p.opts = func(o *Options) { o.TargetTimeout, o.Concurrency = 2*time.Second, 2 }
	out := p.look(t.Context())
	var ids []string
	for _, k := range keys {
		f := finding(t, out, k)
		if f.Verdict != reconcile.Missing || !slices.Contains(f.BlockedBy, open+"y") || f.ProposedAction != reconcile.ActionNone {
			t.Errorf("%s is %s, blocked by %q", k, f.Verdict, f.BlockedBy)
		}
		ids = append(ids, f.FindingID)
	}
	if state, err := p.ledger.RefetchState(t.Context(), ids); err != nil || len(state) != 0 {
		t.Errorf("nobody was heard out, and it counts as attempts: %v %v", state, err)
	}
}
