package mend_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rocketkeep/reconcile/internal/faultstore"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/mend"
)

// Each case is what the places hold, and which of them the copy comes from.
func TestWhichCopyIsTaken(t *testing.T) {
	t.Parallel()
	cut := good[:len(good)-1]
	long := append(bytes.Clone(good), '!')
	type want struct {
		Source, Proof string
		SaidNo        []string
		Fetched       []int // of each peer
	}
	cases := []struct {
		name  string
		peers []*peer
		want  want
	}{
		{"the first that is proven", []*peer{has("p", good), has("q", good)}, want{"p", "checksum sha256", nil, []int{1, 0}}},
		{"a peer without it said no", []*peer{says("p", errAbsent), has("q", good)}, want{"q", "checksum sha256", []string{"p"}, []int{1, 1}}},
		{"a copy that fails its proof twice is a no", []*peer{has("p", bad), has("q", good)}, want{"q", "checksum sha256", []string{"p"}, []int{2, 1}}},
		{"a copy that was spoiled on the way once is fetched again", []*peer{has("p", bad, good), has("q", good)}, want{"p", "checksum sha256", nil, []int{2, 0}}},
		{"a peer that is down said nothing", []*peer{says("p", errDown), has("q", good)}, want{"q", "checksum sha256", nil, []int{1, 1}}},
		{"a bucket that is not there said nothing", []*peer{says("p", errors.Join(errAbsent, objstore.ErrNoSuchBucket)), has("q", good)}, want{"q", "checksum sha256", nil, []int{1, 1}}},
		{"a body that breaks off said nothing", []*peer{breaksOff("p", good, 5), has("q", good)}, want{"q", "checksum sha256", nil, []int{1, 1}}},
		{"a truncated copy is a no", []*peer{has("p", cut), has("q", good)}, want{"q", "checksum sha256", []string{"p"}, []int{2, 1}}},
		{"a copy that is too long is a no", []*peer{has("p", long), has("q", good)}, want{"q", "checksum sha256", []string{"p"}, []int{2, 1}}},
		{"less than was promised said nothing", []*peer{promises("p", cut, int64(len(good))), has("q", good)}, want{"q", "checksum sha256", nil, []int{1, 1}}},
		{"another size promised than is recorded is a no", []*peer{promises("p", good, 5), has("q", good)}, want{"q", "checksum sha256", []string{"p"}, []int{2, 1}}},
		{"no size promised is enough when the bytes are right", []*peer{promises("p", good, objstore.Unknown)}, want{"p", "checksum sha256", nil, []int{1}}},
		{"no size promised and too many bytes is a no", []*peer{promises("p", long, objstore.Unknown), has("q", good)}, want{"q", "checksum sha256", []string{"p"}, []int{2, 1}}},
		{"a no after a bad copy is a no", []*peer{{name: "p", fetch: func(n int) (io.ReadCloser, objstore.Attrs, error) {
			if n == 1 {
				return has("", bad).fetch(1)
			}
			return nil, objstore.Attrs{}, errAbsent
		}}, has("q", good)}, want{"q", "checksum sha256", []string{"p"}, []int{2, 1}}},
		{"no answer after a bad copy is no answer", []*peer{{name: "p", fetch: func(n int) (io.ReadCloser, objstore.Attrs, error) {
			if n == 1 {
				return has("", bad).fetch(1)
			}
			return nil, objstore.Attrs{}, errDown
		}}, has("q", good)}, want{"q", "checksum sha256", nil, []int{2, 1}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			for _, p := range c.peers {
				r.job.Peers = append(r.job.Peers, p)
			}
			res := r.mend(t.Context())
			r.is(res, mend.Restored, "")
			got := want{res.Source, res.Proof, res.SaidNo, nil}
			for _, p := range c.peers {
				got.Fetched = append(got.Fetched, p.fetched())
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			if res.Action != reconcile.ActionRefetch || res.Bytes != int64(len(good)) || "sha256:"+res.SHA256 != sum(good) {
				t.Errorf("the record is wrong: %+v", res)
			}
			r.holds(good)
			r.wrote("create root/a")
		})
	}
}

func TestOlderVersionsComeBeforePeersAndTheNewestOfThemFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t, true)
	r.store.Put(object, good)
	r.store.Put(object, bad)
	r.store.Put(object, good[:3])
	r.store.Remove(object)
	r.job.Finding.Verdict, r.job.Finding.Restorable = reconcile.Recoverable, true
	p := has("p", good)
	r.peers(p)
	res := r.mend(t.Context())
	r.is(res, mend.Restored, "")
	if res.Source != "version v1" || res.Action != reconcile.ActionRestore || p.fetched() != 0 {
		t.Errorf("source %q action %s, and the peer was asked %d times", res.Source, res.Action, p.fetched())
	}
	var read []string
	for _, l := range r.fault.Log() {
		if strings.HasPrefix(l, "getversion") {
			read = append(read, l)
		}
	}
	// The one of another size is not read, the other bad one twice.
	if want := []string{"getversion root/a v2", "getversion root/a v2", "getversion root/a v1"}; !slices.Equal(read, want) {
		t.Errorf("read %q, want %q", read, want)
	}
	r.wrote("overmarker root/a v4")
	if d := cmp.Diff([]string{string(good), "marker", string(good[:3]), string(bad), string(good)}, r.versions(object)); d != "" {
		t.Error("versions changed:", d)
	}
}

func TestAPeerIsTriedAfterVersionsThatAreNoGood(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]faultstore.Rule{
		"no version proves itself":     {},
		"versions cannot be listed":    {Op: "versions", Effect: faultstore.Status(403, "AccessDenied"), Count: 1},
		"a version cannot be read":     {Op: "getversion", Effect: faultstore.Status(503, "SlowDown")},
		"a version breaks off":         {Op: "getversion", Effect: faultstore.ShortBody(3)},
		"the version went in the mean": {Op: "getversion", Effect: faultstore.NotExist()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, true)
			r.store.Put(object, bad)
			r.store.Remove(object)
			r.job.Finding.Verdict, r.job.Finding.Restorable = reconcile.Recoverable, true
			if rule.Op != "" {
				r.fault.Add(rule)
			}
			r.peers(has("p", good))
			res := r.mend(t.Context())
			r.is(res, mend.Restored, "")
			if res.Source != "p" || len(res.SaidNo) != 0 {
				t.Errorf("source %q, said no %q", res.Source, res.SaidNo)
			}
			r.holds(good)
		})
	}
}

func TestAgreement(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name     string
		versions [][]byte
		peers    []*peer
		source   string // "" = refused
		proof    string
	}{
		{"two peers that agree fill what is absent", nil, []*peer{has("p", good), has("q", good)}, "q", "agreement of p and q"},
		{"one peer alone does not", nil, []*peer{has("p", good)}, "", ""},
		{"two that differ do not", nil, []*peer{has("p", good), has("q", bad)}, "", ""},
		{"a third decides between two that differ", nil, []*peer{has("p", bad), has("q", good), has("r", good)}, "r", "agreement of q and r"},
		{"the first pair of three decides", nil, []*peer{has("p", bad), has("q", bad), has("r", good)}, "q", "agreement of p and q"},
		{"one peer twice is one opinion", nil, []*peer{has("p", good), has("p", good)}, "", ""},
		{"two versions are not two opinions", [][]byte{good, good}, nil, "", ""},
		{"a version and a peer are not two peers", [][]byte{good}, []*peer{has("p", good)}, "", ""},
		{"two versions and two peers are two peers", [][]byte{bad, bad}, []*peer{has("p", good), has("q", good)}, "q", "agreement of p and q"},
		{"two that answer for a key that cannot exist do not", nil, []*peer{answersAnything("p"), answersAnything("q")}, "", ""},
		{"nor one of them beside one that tells", nil, []*peer{answersAnything("p"), has("q", good)}, "", ""},
		{"two that give no answer for it do not", nil, []*peer{unsure("p", errDown), unsure("q", objstore.ErrNoSuchBucket)}, "", ""},
		{"web servers whose no is weak agree", nil, []*peer{unsure("p", reconcile.ErrWeakNo), unsure("q", reconcile.ErrWeakNo)}, "q", "agreement of p and q"},
		{"a peer that is down in between changes nothing", nil, []*peer{has("p", good), says("x", errDown), has("q", good)}, "q", "agreement of p and q"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, len(c.versions) > 0)
			r.unrecorded()
			for _, v := range c.versions {
				r.store.Put(object, v)
			}
			if len(c.versions) > 0 {
				r.store.Remove(object)
				r.job.Finding.Verdict, r.job.Finding.Restorable = reconcile.Recoverable, true
			}
			for _, p := range c.peers {
				r.job.Peers = append(r.job.Peers, p)
			}
			res := r.mend(t.Context())
			if c.source == "" {
				r.is(res, mend.Refused, reconcile.BlockedReplaceUnproven)
				if !errors.Is(res.Err, reconcile.ErrUnproven) {
					t.Errorf("the error does not say why: %v", res.Err)
				}
				r.wrote()
				return
			}
			r.is(res, mend.Restored, "")
			if res.Source != c.source || res.Proof != c.proof {
				t.Errorf("source %q proof %q, want %q %q", res.Source, res.Proof, c.source, c.proof)
			}
		})
	}
}

func TestAgreementReplacesNothing(t *testing.T) {
	t.Parallel()
	for name, versions := range map[string]bool{"with versions": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, versions)
			r.opts.Quarantine = quarantine
			r.unrecorded()
			r.damaged(bad)
			r.job.Finding.Verdict = reconcile.Unreadable
			r.peers(has("p", good), has("q", good))
			r.is(r.mend(t.Context()), mend.Refused, reconcile.BlockedReplaceUnproven)
			r.wrote()
			r.holds(bad)
		})
	}
}

func TestNoCopyAnywhereSaysWhoSaidNo(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.peers(says("p", errAbsent), has("q", bad), says("r", errDown))
	res := r.mend(t.Context())
	r.is(res, mend.Failed, "")
	if d := cmp.Diff([][]string{{"p", "q"}, {"r"}}, [][]string{res.SaidNo, res.Silent}); d != "" {
		t.Error(d)
	}
	for _, want := range []string{"p: ", "q: ", "another checksum", "r: connection refused"} {
		if !strings.Contains(res.Err.Error(), want) {
			t.Errorf("%q does not tell %q", res.Err, want)
		}
	}
	r.wrote()
}

// tagged serves the bodies of has with these ETags in turn, the last one for ever.
func tagged(name string, etags []string, bodies ...[]byte) *peer {
	p := has(name, bodies...)
	plain := p.fetch
	p.fetch = func(n int) (io.ReadCloser, objstore.Attrs, error) {
		body, at, err := plain(n)
		at.ETag = etags[min(n, len(etags))-1]
		return body, at, err
	}
	return p
}

// Only the very same copy, refused each time, is remembered: anything else may be good
// the next time.
func TestWhichCopiesAreDisproved(t *testing.T) {
	t.Parallel()
	e := []string{"e1"}
	cut, broken := good[:5], bytes.Clone(good)
	broken[0] = '!' // which byForm refuses
	cases := []struct {
		name  string
		peers []*peer
		form  bool // nothing is recorded, and any form passes
		want  map[string]string
	}{
		{"a copy that fails its proof twice", []*peer{tagged("p", e, bad)}, false, map[string]string{"p": "e1"}},
		{"a copy of another size", []*peer{tagged("p", e, cut)}, false, map[string]string{"p": "e1"}},
		{"each peer's own", []*peer{tagged("p", e, bad), says("q", errAbsent), tagged("r", []string{"e2"}, cut)}, false, map[string]string{"p": "e1", "r": "e2"}},
		{"not one without an ETag", []*peer{has("p", bad)}, false, nil},
		{"not two copies", []*peer{tagged("p", []string{"e1", "e2"}, bad)}, false, nil},
		{"not one whose ETag is told the second time only", []*peer{tagged("p", []string{"", "e1"}, bad)}, false, nil},
		{"not one whose ETag is told the first time only", []*peer{tagged("p", []string{"e1", ""}, bad)}, false, nil},
		{"not one that is good the second time", []*peer{tagged("p", e, bad, good)}, false, nil},
		{"not one before a good one of another peer, once that is taken", []*peer{says("p", errAbsent), tagged("q", e, good)}, false, nil},
		{"one before a good one of another peer", []*peer{tagged("p", e, bad), has("q", good)}, false, map[string]string{"p": "e1"}},
		{"not one that is gone the second time", []*peer{{name: "p", fetch: func(n int) (io.ReadCloser, objstore.Attrs, error) {
			if n == 1 {
				return tagged("", e, bad).fetch(1)
			}
			return nil, objstore.Attrs{}, errAbsent
		}}}, false, nil},
		{"not one that breaks off the second time", []*peer{{name: "p", fetch: func(n int) (io.ReadCloser, objstore.Attrs, error) {
			if n == 1 {
				return tagged("", e, bad).fetch(1)
			}
			return breaksOff("", good, 3).fetch(1)
		}}}, false, nil},
		{"not one that is disputed", []*peer{tagged("p", e, good), tagged("q", []string{"e2"}, bad)}, true, nil},
		{"not one that passed and was another the next time", []*peer{tagged("p", e, good, bad), tagged("q", []string{"e2"}, broken)}, true, map[string]string{"q": "e2"}},
		{"not one that passed and fails afterwards", []*peer{tagged("p", e, good, broken), tagged("q", []string{"e2"}, broken)}, true, map[string]string{"q": "e2"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			if c.form {
				r.unrecorded()
				r.job.Prover = byForm{}
			}
			for _, p := range c.peers {
				r.job.Peers = append(r.job.Peers, p)
			}
			if d := cmp.Diff(c.want, r.mend(t.Context()).Disproved, cmpopts.EquateEmpty()); d != "" {
				t.Error(d)
			}
		})
	}
	t.Run("not one that only cannot be read inside", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, false)
		r.job.Prover = unreadable{}
		r.peers(tagged("p", e, bad))
		if res := r.mend(t.Context()); res.Outcome != mend.Failed || len(res.Disproved)+len(res.SaidNo) != 0 {
			t.Errorf("%+v", res)
		}
	})
	t.Run("not one of which nothing is recorded", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, false)
		r.unrecorded()
		r.peers(tagged("p", e, bad))
		if res := r.mend(t.Context()); len(res.Disproved) != 0 {
			t.Errorf("%v", res.Disproved)
		}
	})
	t.Run("not a version of the own store", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, true)
		r.store.Put(object, bad)
		r.store.Remove(object)
		r.job.Finding.Verdict, r.job.Finding.Restorable = reconcile.Recoverable, true
		if res := r.mend(t.Context()); len(res.Disproved) != 0 || len(res.Refused) != 1 {
			t.Errorf("%v, refused %v", res.Disproved, res.Refused)
		}
	})
}

func TestWithoutAnyPlaceToLookTheErrorSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.is(r.mend(t.Context()), mend.Failed, "")
}

func TestOutsideTheAllowedPlacesNothingIsEvenFetched(t *testing.T) {
	t.Parallel()
	file := objstore.Location{Scheme: "file", Key: "/srv/root"}
	for name, loc := range map[string]objstore.Location{
		"nowhere":                           {},
		"another bucket":                    {Scheme: "mem", Bucket: "c", Key: "root/a"},
		"another endpoint":                  {Scheme: "mem", Endpoint: "x:1", Bucket: "b", Key: "root/a"},
		"a folder whose name goes on":       {Scheme: "mem", Bucket: "b", Key: "root-2/a"},
		"above the root":                    {Scheme: "mem", Bucket: "b", Key: "a"},
		"the root itself":                   root,
		"the root's folder":                 root.Dir(),
		"a path that leaves the root again": file.Join("x/../../etc/passwd"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, true)
			r.opts.Allowed = append(r.opts.Allowed, file)
			r.job.Finding.Ref.Location, r.job.Finding.Restorable = loc, true
			p := has("p", good)
			r.peers(p)
			r.is(r.mend(t.Context()), mend.Refused, reconcile.BlockedOutsideRoot)
			if p.fetched() != 0 || len(r.fault.Log()) != 0 {
				t.Errorf("the peer was asked %d times, the store %q", p.fetched(), r.fault.Log())
			}
		})
	}
}

func TestStagingIsBounded(t *testing.T) {
	t.Parallel()
	big := bytes.Repeat([]byte("x"), 1000)
	for name, c := range map[string]struct {
		size int64
		peer *peer
		read bool
	}{
		"what is recorded as larger is not asked for": {1000, has("p", big), false},
		"what is promised larger is not read":         {0, has("p", big), true},
		"what turns out larger is broken off":         {0, promises("p", big, objstore.Unknown), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, false)
			r.opts.Max = 999
			r.job.Finding.Ref.Size, r.job.Finding.Ref.Checksum = c.size, sum(big)
			r.peers(c.peer)
			res := r.mend(t.Context())
			r.is(res, mend.Failed, "")
			if !strings.Contains(res.Err.Error(), "work.max") {
				t.Errorf("%v does not say which setting bounds it", res.Err)
			}
			if len(res.SaidNo) != 0 {
				t.Errorf("%q said no", res.SaidNo)
			}
			if (c.peer.fetched() > 0) != c.read {
				t.Errorf("fetched %d times", c.peer.fetched())
			}
		})
	}
}

// The room is shared by all jobs: no more bytes are staged at once than fit in it, and
// every job gets its turn.
func TestJobsAtOnceShareTheRoomForCopies(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.opts.Max = int64(2 * len(good))
	m := mend.New(r.opts)
	var mu sync.Mutex
	now, most := 0, 0
	slow := func(name string) *peer {
		return &peer{name: name, fetch: func(int) (io.ReadCloser, objstore.Attrs, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			return io.NopCloser(bytes.NewReader(good)), objstore.Attrs{Size: int64(len(good))}, nil
		}}
	}
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			job := r.job
			job.Peers = []reconcile.Peer{has("x", bad), slow("p")}
			p, res := m.Prepare(t.Context(), job)
			if p == nil {
				t.Errorf("not prepared: %v", res.Err)
				return
			}
			time.Sleep(2 * time.Millisecond)
			mu.Lock()
			now--
			mu.Unlock()
			p.Close()
			p.Close()
		})
	}
	wg.Wait()
	if most > 2 {
		t.Errorf("%d copies were staged at once, and two fit", most)
	}
}

func TestWaitingForRoomEndsWithTheContext(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.opts.Max = int64(len(good))
	m := mend.New(r.opts)
	r.peers(has("p", good))
	held, _ := m.Prepare(t.Context(), r.job)
	if held == nil {
		t.Fatal("not prepared")
	}
	defer held.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if p, res := m.Prepare(ctx, r.job); p != nil || !errors.Is(res.Err, context.DeadlineExceeded) {
		t.Errorf("prepared %v, %v", p != nil, res.Err)
	}
}

func TestAFolderThatCannotBeWrittenIsNobodysNo(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.opts.Dir += "/absent"
	r.peers(has("p", good))
	res := r.mend(t.Context())
	r.is(res, mend.Failed, "")
	if len(res.SaidNo)+len(res.Silent) != 0 {
		t.Errorf("%q said no, %q nothing", res.SaidNo, res.Silent)
	}
}

func TestABodyThatBreaksOffIsNoAnswer(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]io.Reader{"an error in the middle": io.MultiReader(bytes.NewReader(good[:2]), iotest.ErrReader(errDown)), "an early end": bytes.NewReader(good[:2])} {
		r := newRig(t, false)
		r.peers(&peer{name: "p", fetch: func(int) (io.ReadCloser, objstore.Attrs, error) {
			return io.NopCloser(body), objstore.Attrs{Size: int64(len(good))}, nil
		}})
		res := r.mend(t.Context())
		r.is(res, mend.Failed, "")
		if len(res.SaidNo) != 0 || !slices.Equal(res.Silent, []string{"p"}) {
			t.Errorf("%s: %q said no, %q nothing", name, res.SaidNo, res.Silent)
		}
	}
}

func TestAStoreThatCannotBeOpenedIsAFailure(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.opts.Writer = func(context.Context, objstore.Location) (objstore.Writer, error) {
		return nil, objstore.ErrNoCredentials
	}
	r.peers(has("p", good))
	res := r.mend(t.Context())
	r.is(res, mend.Failed, "")
	if !errors.Is(res.Err, objstore.ErrNoCredentials) {
		t.Error(res.Err)
	}
}

// endless is a body without an end. It counts what is read of it.
type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	if e.n > 1<<20 {
		return 0, errors.New("read on and on")
	}
	e.n += len(p)
	return len(p), nil
}

func TestAPeerThatIsOnlyComparedIsNotReadWithoutEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, false)
	r.unrecorded()
	r.job.Prover = byForm{}
	var e endless
	r.peers(has("p", good), &peer{name: "q", fetch: func(int) (io.ReadCloser, objstore.Attrs, error) {
		return io.NopCloser(&e), objstore.Attrs{Size: objstore.Unknown}, nil
	}})
	r.is(r.mend(t.Context()), mend.Restored, "")
	if e.n > 64<<10 {
		t.Errorf("%d bytes were read", e.n)
	}
}

// unsure has the object, and gives an answer to a key that cannot exist.
func unsure(name string, control error) *peer {
	p := has(name, good)
	p.control = control
	return p
}

func answersAnything(name string) *peer { return unsure(name, nil) }

// unreadable finds every copy unreadable inside.
type unreadable struct{}

func (unreadable) Prove(context.Context, reconcile.Reference, reconcile.Copy) (string, error) {
	return "", fmt.Errorf("%w: page 3", reconcile.ErrInside)
}
