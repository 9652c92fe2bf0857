package pass

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/blobs"
	"github.com/rocketkeep/reconcile/reconcile/blobs/refs"
)

var _ resumable = (*blobs.Collection)(nil)

// counted counts the HEADs of a store, and does something at each.
type counted struct {
	*place
	heads atomic.Int64
	at    func(ctx context.Context, n int64)
}

func (c *counted) Reader(ctx context.Context, l objstore.Location) (objstore.Reader, error) {
	return countedReader{c.store, c}, nil
}

type countedReader struct {
	objstore.Reader
	c *counted
}

func (r countedReader) Stat(ctx context.Context, l objstore.Location) (objstore.Attrs, error) {
	if n := r.c.heads.Add(1); r.c.at != nil {
		r.c.at(ctx, n)
	}
	return r.Reader.Stat(ctx, l)
}

// large is a place of so many blobs, k000000 and on, one byte each.
func large(t *testing.T, n int) (*place, *counted) {
	p := newPlace(t, false)
	for i := range n {
		key := fmt.Sprintf("k%06d", i)
		p.recs.list = append(p.recs.list, refs.Record{Key: key, Size: 1})
		p.store.PutSparse(p.at(key), 1)
	}
	slices.SortFunc(p.recs.list, func(a, b refs.Record) int { return strings.Compare(a.Key, b.Key) })
	c := &counted{place: p}
	p.opts = func(o *Options) { o.Stores, o.TargetTimeout = c, time.Hour }
	return p, c
}

// until takes a look that is broken off when it comes to a key.
func (p *place) until(key string) *Outcome {
	p.t.Helper()
	ctx, stop := context.WithCancelCause(p.t.Context())
	p.recs.after = func(k string) {
		if k == key {
			stop(errors.New("killed"))
		}
	}
	out := p.look(ctx)
	p.recs.after = nil
	if out.Interrupted == nil || out.Targets[0].State != reconcile.StateIncomplete {
		p.t.Fatalf("the look was not broken off: %s", out.Targets[0].State)
	}
	return out
}

func (p *place) checkpoint() *ledger.Checkpoint {
	p.t.Helper()
	cp, err := p.ledger.Checkpoint(p.t.Context(), p.target.Location.Canonical())
	if err != nil {
		p.t.Fatal(err)
	}
	if cp != nil {
		slices.Sort(cp.Suspects)
	}
	return cp
}

// open are the paths of the findings that are open in the ledger.
func (p *place) open() (out []string) {
	p.t.Helper()
	fs, err := p.ledger.OpenFindings(p.t.Context(), p.target.Location.Canonical())
	if err != nil {
		p.t.Fatal(err)
	}
	for _, f := range fs {
		out = append(out, f.Finding.Path)
	}
	slices.Sort(out)
	return out
}

// total fails the test unless the outcome tells of so many references, all checked, and
// of these findings.
func total(t *testing.T, out *Outcome, references int, missing ...string) {
	t.Helper()
	r := out.Targets[0]
	if r.References != int64(references) || r.Checked != int64(references) || out.Totals.References != r.References || out.Totals.Checked != r.Checked {
		t.Errorf("%d references, %d checked (totals %d, %d), want %d", r.References, r.Checked, out.Totals.References, out.Totals.Checked, references)
	}
	if v := out.Totals.Verdicts; v[reconcile.Present] != int64(references-len(missing)) || v[reconcile.Missing] != int64(len(missing)) {
		t.Errorf("verdicts %v, want %d present and %d missing", v, references-len(missing), len(missing))
	}
	var got []string
	for _, f := range out.Findings {
		if f.Verdict != reconcile.Missing || f.ConfirmedAt == nil {
			t.Errorf("%s is %s", f.Path, f.Verdict)
		}
		got = append(got, f.Path)
	}
	if !slices.Equal(got, missing) {
		t.Errorf("findings %q, want %q", got, missing)
	}
}

func TestALookOfManyGoesOnWhereItWasBrokenOff(t *testing.T) {
	t.Parallel()
	p, c := large(t, 100_000)
	// At the first and last of what is recorded, behind it, and never reached.
	missing := []string{"k000000", "k000007", "k025000", "k049999", "k050000", "k057000", "k060000", "k099999"}
	p.gone(missing...)
	p.until("k057123")
	cp := p.checkpoint()
	if cp == nil || cp.References != 49_996 || cp.Checked != cp.References || cp.Present != cp.References || !slices.Equal(cp.Suspects, missing[:4]) {
		t.Fatalf("checkpoint %+v", cp)
	}
	c.heads.Store(0)
	out := p.look(t.Context())
	total(t, out, 100_001, missing...)
	if began := p.recs.began[len(p.recs.began)-1]; began != "k049999" {
		t.Errorf("the walk began at %q", began)
	}
	// 50,001 were left, four are looked at again, and there are controls.
	if n := c.heads.Load(); n < 50_005 || n > 50_100 {
		t.Errorf("%d HEADs", n)
	}
	if got := p.open(); !slices.Equal(got, missing) {
		t.Errorf("open: %q", got)
	}
	if cp := p.checkpoint(); cp != nil {
		t.Errorf("a checkpoint is left: %+v", cp)
	}
	// The next one is whole.
	out = p.look(t.Context())
	total(t, out, 100_001, missing...)
	if began := p.recs.began[len(p.recs.began)-1]; began != "" {
		t.Errorf("the walk began at %q", began)
	}
}

func TestSuspectsAreLookedAtAsTheyAreNow(t *testing.T) {
	t.Parallel()
	p, _ := large(t, 12_000)
	p.gone("k000001", "k000002", "k000003", "k000004")
	p.until("k011000")
	p.store.PutSparse(p.at("k000002"), 1) // it came
	// Its record went, and another says something else now.
	p.recs.list = slices.DeleteFunc(slices.Clone(p.recs.list), func(r refs.Record) bool { return r.Key == "k000003" })
	p.recs.set("k000004", "md5:00000000000000000000000000000000")
	out := p.look(t.Context())
	total(t, out, 12_000, "k000001", "k000004")
	if f := finding(t, out, "k000004"); f.ExpectedChecksum == nil {
		t.Error("what the record says now is not what is told")
	}
}

// More suspects than lie between two checkpoints, and a look that is broken off while
// they are looked at again: none of them may be forgotten.
func TestALookThatIsBrokenOffAgainAndAgainForgetsNoSuspect(t *testing.T) {
	t.Parallel()
	p, c := large(t, 21_500)
	var missing []string
	for i := range 10_050 {
		missing = append(missing, fmt.Sprintf("k%06d", i))
	}
	p.gone(missing...)
	p.ledger.forgets = true // so many findings take their time, and are not the matter here
	p.until("k021000")
	if cp := p.checkpoint(); cp == nil || len(cp.Suspects) != len(missing) {
		t.Fatalf("checkpoint %+v", cp)
	}
	ctx, stop := context.WithCancelCause(t.Context())
	c.heads.Store(0)
	c.at = func(_ context.Context, n int64) {
		if n == 10_020 {
			stop(errors.New("killed"))
		}
	}
	p.look(ctx)
	c.at = nil
	out := p.look(t.Context())
	total(t, out, 21_501, missing...)
}

// What is open in the part that was not walked again stays open, whatever happened to
// it: this look did not see it.
func TestTheWalkedPartResolvesNothingWhenALookGoesOn(t *testing.T) {
	t.Parallel()
	p, _ := large(t, 12_000)
	p.gone("k000005", "k011001")
	p.look(t.Context())
	if got := p.open(); !slices.Equal(got, []string{"k000005", "k011001"}) {
		t.Fatalf("open: %q", got)
	}
	// Neither is named any more.
	p.recs.list = slices.DeleteFunc(slices.Clone(p.recs.list), func(r refs.Record) bool { return r.Key == "k000005" || r.Key == "k011001" })
	p.until("k010900")
	if got := p.open(); !slices.Equal(got, []string{"k000005", "k011001"}) {
		t.Errorf("a look that was broken off resolved something; open: %q", got)
	}
	out := p.look(t.Context())
	total(t, out, 11_999)
	if got := p.open(); !slices.Equal(got, []string{"k000005", "k011001"}) {
		t.Errorf("a look that went on resolved something; open: %q", got)
	}
	p.look(t.Context())
	if got := p.open(); len(got) != 0 {
		t.Errorf("a whole look resolved not everything; open: %q", got)
	}
}

func TestACheckpointIsGoodForTheSameLookOnly(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Options, *blobs.Options){
		"a deeper look begins anew":           func(o *Options, _ *blobs.Options) { o.Depth = reconcile.DepthFooter },
		"other references begin anew":         func(_ *Options, b *blobs.Options) { b.ID = "other" },
		"another sample begins anew":          func(_ *Options, b *blobs.Options) { b.Sample = 0.9999 },
		"without a memory it begins anew too": func(o *Options, _ *blobs.Options) { o.Recall = Recall{} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := large(t, 12_000)
			p.until("k011000")
			plain := p.opts
			p.opts = func(o *Options) {
				plain(o)
				b := blobs.Options{Root: collection, Records: p.recs, Stores: p, Sample: 1, Day: p.clock.Now()}
				change(o, &b)
				o.Open = func(t reconcile.Target) reconcile.Source { return blobs.New(t, b) }
			}
			out := p.look(t.Context())
			if began := p.recs.began[len(p.recs.began)-1]; began != "" {
				t.Errorf("the walk began at %q", began)
			}
			if out.Targets[0].State != reconcile.StateClean {
				t.Errorf("state %s", out.Targets[0].State)
			}
		})
	}
}

func TestALookThatIsBrokenOffByTimeGoesOnAsWell(t *testing.T) {
	t.Parallel()
	p, c := large(t, 12_000)
	c.at = func(ctx context.Context, n int64) {
		if n >= 11_000 {
			<-ctx.Done()
		}
	}
	plain := p.opts
	p.opts = func(o *Options) { plain(o); o.TargetTimeout = 5 * time.Second }
	out := p.look(t.Context())
	if r := out.Targets[0]; r.State != reconcile.StateIncomplete || deref(r.Reason) != reconcile.ReasonTargetTimeout {
		t.Fatalf("%s %s", r.State, deref(r.Reason))
	}
	if cp := p.checkpoint(); cp == nil || cp.References != 10_000 {
		t.Fatalf("checkpoint %+v", cp)
	}
	c.at = nil
	p.opts = plain
	total(t, p.look(t.Context()), 12_001)
}
