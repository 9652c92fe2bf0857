package blobs_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/blobs"
	"github.com/rocketkeep/reconcile/reconcile/blobs/refs"
)

// list is a reader of rows: a record, or what is wrong with a row. Positions are
// ordinals of one state.
type list struct {
	rows  []any
	state string
	since time.Time
	err   error // of every call
	fixed bool  // not resumable
}

func (l *list) Records(_ context.Context, after string) iter.Seq2[refs.Record, error] {
	return func(yield func(refs.Record, error) bool) {
		from := -1
		if after != "" {
			var state string
			if _, err := fmt.Sscanf(after, "%d@%s", &from, &state); err != nil || state != l.state {
				yield(refs.Record{}, refs.ErrPositionGone)
				return
			}
		}
		if l.err != nil {
			yield(refs.Record{}, l.err)
			return
		}
		for i, row := range l.rows[from+1:] {
			at := fmt.Sprintf("%d@%s", from+1+i, l.state)
			switch row := row.(type) {
			case refs.Record:
				row.Position = at
				if !yield(row, nil) {
					return
				}
			case refs.RowError:
				if !row.Partial {
					row.Position = at
				}
				if !yield(refs.Record{}, &row) {
					return
				}
			}
		}
	}
}

func (l *list) Confirm(_ context.Context, keys []string) (map[string]refs.Record, error) {
	out := map[string]refs.Record{}
	for _, row := range l.rows {
		if rec, ok := row.(refs.Record); ok && slices.Contains(keys, rec.Key) {
			out[rec.Key] = rec
		}
	}
	return out, l.err
}
func (l *list) NamedSince(context.Context) (time.Time, error) { return l.since, l.err }
func (l *list) Resumable() bool                               { return !l.fixed }
func (l *list) Close() error                                  { return nil }

func rec(key string) refs.Record { return refs.Record{Key: key, Size: refs.Unknown} }

func recs(n int) *list {
	l := &list{state: "s"}
	for i := range n {
		l.rows = append(l.rows, rec(fmt.Sprintf("k%05d", i)))
	}
	return l
}

type stores struct{ *memstore.Store }

func (s stores) Reader(context.Context, objstore.Location) (objstore.Reader, error) {
	return s.Store, nil
}
func (s stores) Locate(uri string) (objstore.Location, error) {
	if strings.Contains(uri, "broken") {
		return objstore.Location{}, errors.New("no place")
	}
	return objstore.Parse(uri)
}

var (
	s3root   = objstore.Location{Scheme: "s3", Bucket: "b", Key: "att"}
	fileRoot = objstore.Location{Scheme: "file", Key: "/srv/att"}
	today    = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
)

func collection(l *list, change ...func(*blobs.Options)) *blobs.Collection {
	o := blobs.Options{Root: s3root, Records: l, Stores: stores{memstore.New(memstore.Options{})}, Sample: 1, Day: today}
	for _, c := range change {
		c(&o)
	}
	return blobs.New(blobs.Target("x", o.Root), o)
}

func walk(t testing.TB, c *blobs.Collection) (out []reconcile.Reference) {
	t.Helper()
	for ref, err := range c.References(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, ref)
	}
	return out
}

func TestWhereKeysLie(t *testing.T) {
	t.Parallel()
	allow := []objstore.Location{{Scheme: "s3", Bucket: "other", Key: "ok"}, {Scheme: "file", Key: "/mnt/ok"}}
	cases := []struct {
		root objstore.Location
		key  string
		want string // of the location; "" = none
		base string
		why  string
	}{
		{s3root, "a/b.bin", "s3://b/att/a/b.bin", "s3://b/att", ""},
		{s3root, "with space", "s3://b/att/with space", "s3://b/att", ""},
		{s3root, "50%25 off%", "s3://b/att/50%25 off%", "s3://b/att", ""},
		{s3root, "a+b", "s3://b/att/a+b", "s3://b/att", ""},
		{s3root, "ключ/鍵", "s3://b/att/ключ/鍵", "s3://b/att", ""},
		{s3root, "bad\xffutf8", "s3://b/att/bad\xffutf8", "s3://b/att", ""},
		{s3root, "/leading", "s3://b/att//leading", "s3://b/att", ""},
		{s3root, "trailing/", "s3://b/att/trailing/", "s3://b/att", ""},
		{s3root, "../up", "s3://b/att/../up", "s3://b/att", ""},
		{s3root, "a//b/./c", "s3://b/att/a//b/./c", "s3://b/att", ""},
		{s3root, "q?x=1#y", "s3://b/att/q?x=1#y", "s3://b/att", ""},
		{s3root, "", "", "", "bad_key"},
		{s3root, "s3://b/att/a%20b", "s3://b/att/a%20b", "s3://b/att", ""},
		{s3root, "s3a://b/att/x", "s3://b/att/x", "s3://b/att", ""},
		{s3root, "s3://other/ok/x", "s3://other/ok/x", "s3://other/ok", ""},
		{s3root, "file:///mnt/ok/a%20b", "file:///mnt/ok/a%20b", "file:///mnt/ok", ""},
		{s3root, "file:///mnt/ok/../../etc/passwd", "", "", "outside_collection"},
		{s3root, "s3://b/att-2/x", "", "", "outside_collection"},
		{s3root, "s3://b/x", "", "", "outside_collection"},
		{s3root, "s3://b/att", "", "", "outside_collection"},
		{s3root, "s3://b/att/", "", "", "outside_collection"},
		{s3root, "s3://other/x", "", "", "outside_collection"},
		{s3root, "https://example.com/x", "", "", "outside_collection"},
		{s3root, "gs://b/x", "", "", "outside_collection"},
		{s3root, "s3://broken/x", "", "", "bad_key"},
		{s3root, "://x", "s3://b/att/://x", "s3://b/att", ""},
		{s3root, "2024://x", "s3://b/att/2024://x", "s3://b/att", ""},
		{s3root, "файл://x", "s3://b/att/файл://x", "s3://b/att", ""},
		{s3root, "a b://x", "s3://b/att/a b://x", "s3://b/att", ""},
		{s3root, "a/b://x", "s3://b/att/a/b://x", "s3://b/att", ""},
		{objstore.Location{Scheme: "s3", Bucket: "b"}, "/x", "s3://b//x", "s3://b/", ""},
		{objstore.Location{Scheme: "s3", Bucket: "b", Key: "att/"}, "x", "s3://b/att/x", "s3://b/att/", ""},
		{fileRoot, "a b%41+", "file:///srv/att/a%20b%2541+", "file:///srv/att", ""},
		{fileRoot, "../up", "", "", "outside_collection"},
		{fileRoot, "a/../../up", "", "", "outside_collection"},
		{fileRoot, "a/..", "", "", "outside_collection"},
		{fileRoot, "a..b/...", "file:///srv/att/a..b/...", "file:///srv/att", ""},
		{fileRoot, "folder/", "", "", "bad_key"},
		{fileRoot, "/lead", "", "", "bad_key"},
		{fileRoot, "./x", "", "", "bad_key"},
		{fileRoot, "a//x", "", "", "bad_key"},
		{fileRoot, "nul\x00", "", "", "bad_key"},
		{fileRoot, strings.Repeat("n", 256), "", "", "bad_key"},
		{fileRoot, "a/" + strings.Repeat("n", 255), "file:///srv/att/a/" + strings.Repeat("n", 255), "file:///srv/att", ""},
		{fileRoot, "/srv/att/x", "", "", "bad_key"},
		{fileRoot, "file:///srv/att/a%20b", "file:///srv/att/a%20b", "file:///srv/att", ""},
		{fileRoot, "file:///srv/att/%2e%2e/x", "", "", "outside_collection"},
		{fileRoot, "file:///srv/att/%zz", "", "", "bad_key"},
	}
	for _, c := range cases {
		t.Run(c.root.Scheme+" "+c.key, func(t *testing.T) {
			t.Parallel()
			col := collection(&list{rows: []any{rec(c.key)}}, func(o *blobs.Options) { o.Root, o.Allow = c.root, allow })
			ref := walk(t, col)[0]
			if ref.Path != c.key || ref.Location.String() != c.want || ref.Base.String() != c.base || ref.Reason != c.why {
				t.Errorf("%q lies at %q below %q (%q), want %q below %q (%q)", ref.Path, ref.Location, ref.Base, ref.Reason, c.want, c.base, c.why)
			}
			again, err := col.Named(t.Context(), []string{c.key, "absent"})
			if err != nil || len(again) != 1 {
				t.Fatal(again, err)
			}
			if d := cmp.Diff(ref, again[0]); d != "" {
				t.Error("resolved again it is another:", d)
			}
		})
	}
}

func TestWhatARecordSaysOfItsBlob(t *testing.T) {
	t.Parallel()
	l := &list{rows: []any{refs.Record{Key: "a", Size: 7, Checksum: "md5:x", Record: "r1"}, refs.Record{Key: "b", Size: 0}, refs.Record{Key: "c", Size: refs.Unknown}}}
	got := walk(t, collection(l))
	if r := got[0]; r.Size != 7 || r.Checksum != "md5:x" || r.Record != "r1" || r.Role != reconcile.RoleBlob || r.PhysicalRows != reconcile.UnknownRows || r.LiveRows != reconcile.UnknownRows {
		t.Errorf("%+v", r)
	}
	for _, r := range got[1:] {
		if r.Size != 0 {
			t.Errorf("%s has a recorded size of %d", r.Path, r.Size)
		}
	}
}

func TestASampleIsThatOfItsDay(t *testing.T) {
	t.Parallel()
	const n = 10_000
	of := func(share float64, day time.Time) map[string]bool {
		out := map[string]bool{}
		c := collection(recs(n), func(o *blobs.Options) { o.Sample, o.Day = share, day })
		for _, r := range walk(t, c) {
			out[r.Path] = true
		}
		left := c.Unread()
		if len(left) != 1 || *left[0].Count+int64(len(out)) != n || left[0].Role != reconcile.RoleBlob {
			t.Errorf("share %g: %d looked at, left out %+v", share, len(out), left)
		}
		return out
	}
	for _, share := range []float64{0.01, 0.1, 0.5, 0.99} {
		got := of(share, today)
		// Within five standard deviations.
		if mean, sd := share*n, math.Sqrt(share*(1-share)*n); math.Abs(float64(len(got))-mean) > 5*sd {
			t.Errorf("share %g of %d is %d", share, n, len(got))
		}
		if !maps.Equal(got, of(share, today.Add(18*time.Hour))) {
			t.Errorf("share %g: later on the same day it is another", share)
		}
		next := of(share, today.Add(24*time.Hour))
		both := 0
		for k := range got {
			if next[k] {
				both++
			}
		}
		if mean := share * share * n; math.Abs(float64(both)-mean) > 5*math.Sqrt(mean)+5 {
			t.Errorf("share %g: %d are looked at on two days, by chance it is %.0f", share, both, mean)
		}
	}
	if a, b := of(0.5, today), of(0.5, today.In(time.FixedZone("", -10*3600))); !maps.Equal(a, b) {
		t.Error("the day depends on the zone")
	}
	c := collection(recs(n))
	if got := walk(t, c); len(got) != n || len(c.Unread()) != 0 {
		t.Errorf("the whole is %d, left out %v", len(got), c.Unread())
	}
}

func TestRowsThatNameNoBlobAreTold(t *testing.T) {
	t.Parallel()
	bad := func(row int64, reason string, n int64, partial bool) refs.RowError {
		return refs.RowError{Row: row, Reason: reason, Count: n, Partial: partial}
	}
	l := &list{rows: []any{rec("a"), bad(2, refs.ReasonNoKey, 1, false), bad(3, refs.ReasonMalformed, 0, false), bad(4, refs.ReasonNoKey, 3, false), rec("b"), bad(0, refs.ReasonDoubled, 9, true)}}
	c := collection(l)
	if got := walk(t, c); len(got) != 2 {
		t.Fatalf("%d references", len(got))
	}
	var got []string
	for _, n := range c.Unread() {
		got = append(got, fmt.Sprintf("%s %d %s", n.Role, *n.Count, n.Reason))
	}
	want := []string{"blob 9 rows of the references: doubled key (9 rows)", "blob 1 rows of the references: row 3: malformed row", "blob 4 rows of the references: row 2: no key"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestAWalkThatFailsIsNotTheWhole(t *testing.T) {
	t.Parallel()
	down := errors.New("connection refused")
	c := collection(&list{err: down})
	if _, err := c.Open(t.Context()); !errors.Is(err, down) {
		t.Errorf("open: %v", err)
	}
	var got error
	for _, err := range c.References(t.Context()) {
		got = err
	}
	if !errors.Is(got, down) {
		t.Errorf("walk: %v", got)
	}
	if _, err := c.Revisit(t.Context(), []reconcile.Reference{{Path: "a"}}); !errors.Is(err, down) {
		t.Errorf("revisit: %v", err)
	}
	if _, err := c.Named(t.Context(), []string{"a"}); !errors.Is(err, down) {
		t.Errorf("named: %v", err)
	}
}

func TestAWalkGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	for _, share := range []float64{1, 0.3} {
		sampled := func(o *blobs.Options) { o.Sample = share }
		l := recs(500)
		for _, i := range []int{3, 40, 41, 499} {
			l.rows[i] = refs.RowError{Row: int64(i + 1), Reason: refs.ReasonNoKey}
		}
		l.rows[50] = rec("odd\xff\x00key")
		whole := collection(l, sampled)
		all := walk(t, whole)
		for _, stop := range []int{1, 2, 37, len(all) - 1, len(all)} {
			first := collection(l, sampled)
			var got []reconcile.Reference
			for ref := range first.References(t.Context()) {
				if got = append(got, ref); len(got) == stop {
					break
				}
			}
			second := collection(l, sampled)
			if err := second.Resume(t.Context(), first.Position()); err != nil {
				t.Fatal(err)
			}
			if second.Position() != first.Position() {
				t.Error("before it goes on, a walk stands where it began")
			}
			got = append(got, walk(t, second)...)
			if d := cmp.Diff(all, got); d != "" {
				t.Fatalf("share %g, stopped after %d: %s", share, stop, d)
			}
			if d := cmp.Diff(whole.Unread(), second.Unread()); d != "" {
				t.Errorf("share %g, stopped after %d, what was not looked at: %s", share, stop, d)
			}
		}
	}
}

func TestPositionsThatAreNoGoodAnyMore(t *testing.T) {
	t.Parallel()
	l := recs(10)
	c := collection(l)
	if c.Position() != "" {
		t.Error("a walk that did not begin has a position")
	}
	for range c.References(t.Context()) {
		break
	}
	at := c.Position()
	other := recs(10)
	other.state = "other"
	if err := collection(other).Resume(t.Context(), at); !errors.Is(err, refs.ErrPositionGone) {
		t.Errorf("of a source that changed: %v", err)
	}
	for _, bad := range []string{"", "x", "{}", "5@s", `{"position":"??"}`} {
		if err := collection(l).Resume(t.Context(), bad); !errors.Is(err, refs.ErrPositionGone) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	l.err = errors.New("down")
	if err := collection(l).Resume(t.Context(), at); err != nil {
		t.Errorf("a source that gives no answer now says nothing of the position: %v", err)
	}
	l.err, l.fixed = nil, true
	if c.Position() != "" {
		t.Error("a source that cannot go on has a position")
	}
	if err := collection(l).Resume(t.Context(), at); err == nil {
		t.Error("a source that cannot go on went on")
	}
}

func TestPositionsAreGoodInTheSamePartOfTheSameReferences(t *testing.T) {
	t.Parallel()
	id := func(name string, share float64, day time.Time) string {
		return collection(&list{}, func(o *blobs.Options) { o.ID, o.Sample, o.Day = name, share, day }).SourceID()
	}
	if id("x", 1, today) != id("x", 1, today.Add(240*time.Hour)) {
		t.Error("the whole is another on another day")
	}
	if id("x", 0.5, today) != id("x", 0.5, today.Add(18*time.Hour)) {
		t.Error("a sample is another later on the same day")
	}
	seen := map[string]bool{}
	for _, s := range []string{id("x", 1, today), id("y", 1, today), id("x", 0.5, today), id("x", 0.25, today), id("y", 0.5, today), id("x", 0.5, today.Add(24*time.Hour))} {
		if seen[s] {
			t.Errorf("%q names two", s)
		}
		seen[s] = true
	}
}

func TestRevisit(t *testing.T) {
	t.Parallel()
	l := &list{rows: []any{refs.Record{Key: "same", Size: 3, Checksum: "md5:a"}, refs.Record{Key: "size", Size: 3}, refs.Record{Key: "sum", Checksum: "md5:a"}, refs.Record{Key: "gone"}, rec("s3://elsewhere/x"), refs.Record{Key: "unknown", Size: 0}}}
	c := collection(l)
	asked := walk(t, c)
	l.rows = []any{refs.Record{Key: "same", Size: 3, Checksum: "md5:a", Record: "another"}, refs.Record{Key: "size", Size: 4}, refs.Record{Key: "sum", Checksum: "md5:b"}, rec("s3://elsewhere/x"), refs.Record{Key: "unknown", Size: refs.Unknown}}
	rev, err := c.Revisit(t.Context(), asked)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]bool{true, false, false, false, true, true}, rev.Named); d != "" {
		t.Error(d)
	}
}

func TestOlder(t *testing.T) {
	t.Parallel()
	asked := make([]reconcile.Reference, 2)
	for name, c := range map[string]struct {
		since time.Time
		age   time.Duration
		want  bool
	}{
		"long enough":            {today.Add(-time.Hour), time.Hour, true},
		"not yet":                {today.Add(-time.Hour + 1), time.Hour, false},
		"since nobody knows":     {time.Time{}, time.Hour, false},
		"no age is asked for":    {time.Time{}, 0, true},
		"from the future":        {today.Add(time.Hour), time.Minute, false},
		"the future, and no age": {today.Add(time.Hour), 0, true},
	} {
		col := collection(&list{since: c.since})
		if _, err := col.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := col.Older(t.Context(), asked, c.age)
		if err != nil || !slices.Equal(got, []bool{c.want, c.want}) {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
}

func TestPropose(t *testing.T) {
	t.Parallel()
	const open = reconcile.BlockedRungOpen + "p"
	type given struct {
		verdict    reconcile.Verdict
		restorable bool
		having     []string
		blocked    []string
		elsewhere  bool
	}
	cases := []struct {
		name    string
		given   given
		action  reconcile.Action
		blocked []string
		planned bool
	}{
		{"a version", given{reconcile.Recoverable, true, nil, nil, false}, reconcile.ActionRestore, nil, true},
		{"a peer", given{reconcile.Missing, false, []string{"q"}, nil, false}, reconcile.ActionRefetch, nil, true},
		{"both: the version", given{reconcile.ChecksumMismatch, true, []string{"q"}, nil, false}, reconcile.ActionRestore, nil, true},
		{"a peer, and another gave no answer", given{reconcile.Missing, false, []string{"q"}, []string{open}, false}, reconcile.ActionRefetch, nil, true},
		{"a peer, and the versions are unknown", given{reconcile.Missing, false, []string{"q"}, []string{reconcile.BlockedVersionsUnknown}, false}, reconcile.ActionRefetch, nil, true},
		{"what forbids drops forbids no copy", given{reconcile.Missing, false, []string{"q"}, []string{reconcile.BlockedDropAfter, reconcile.BlockedIncompleteLook, reconcile.BlockedCoolingDown}, false}, reconcile.ActionRefetch, nil, true},
		{"acknowledged", given{reconcile.Missing, false, []string{"q"}, []string{reconcile.BlockedAcknowledged}, false}, reconcile.ActionRefetch, []string{reconcile.BlockedAcknowledged}, false},
		{"in a place that is looked at only", given{reconcile.Missing, false, []string{"q"}, nil, true}, reconcile.ActionRefetch, []string{reconcile.BlockedOutsideRoot}, false},
		{"no answer says why it is not lost", given{reconcile.Missing, false, nil, []string{open, reconcile.BlockedDropAfter}, false}, reconcile.ActionNone, []string{open}, false},
		{"so do versions that nobody could list", given{reconcile.Missing, false, nil, []string{reconcile.BlockedVersionsUnknown, reconcile.BlockedIncompleteLook}, false}, reconcile.ActionNone, []string{reconcile.BlockedVersionsUnknown}, false},
		{"lost", given{reconcile.Lost, false, nil, []string{reconcile.BlockedDropAfter}, false}, reconcile.ActionNone, nil, false},
		{"lost and acknowledged", given{reconcile.Lost, false, nil, []string{reconcile.BlockedAcknowledged}, false}, reconcile.ActionNone, []string{reconcile.BlockedAcknowledged}, false},
		{"on its way", given{reconcile.Pending, true, []string{"q"}, []string{reconcile.BlockedDropAfter}, false}, reconcile.ActionNone, nil, false},
		{"undecided", given{reconcile.Undecided, false, nil, []string{reconcile.BlockedIncompleteLook}, false}, reconcile.ActionNone, nil, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			col := collection(&list{}, func(o *blobs.Options) { o.Allow = []objstore.Location{{Scheme: "s3", Bucket: "o"}} })
			ref := reconcile.Reference{Role: reconcile.RoleBlob, Path: "k", Location: s3root.Join("k"), Base: s3root, Checksum: "md5:d41d8cd98f00b204e9800998ecf8427e"}
			if c.given.elsewhere {
				ref.Location = objstore.Location{Scheme: "s3", Bucket: "o", Key: "k"}
			}
			f := reconcile.NewFinding(col.Target(), ref, today)
			f.Verdict, f.Restorable, f.PeersHaving, f.BlockedBy = c.given.verdict, c.given.restorable, c.given.having, append([]string{}, c.given.blocked...)
			fs := []reconcile.Finding{f}
			acts, err := col.Propose(t.Context(), fs, reconcile.Policy{})
			if err != nil {
				t.Fatal(err)
			}
			if fs[0].ProposedAction != c.action || !slices.Equal(fs[0].BlockedBy, c.blocked) || fs[0].BlockedBy == nil {
				t.Errorf("%s blocked by %q, want %s %q", fs[0].ProposedAction, fs[0].BlockedBy, c.action, c.blocked)
			}
			if (len(acts) > 0) != c.planned {
				t.Fatalf("planned %+v", acts)
			}
			for _, a := range acts {
				if a.Action != c.action || !slices.Equal(a.Files, []string{"k"}) || a.URI != "s3://b/att" || a.Source == nil || a.Fragments == nil || a.Action.Destructive() {
					t.Errorf("action %+v", a)
				}
			}
		})
	}
}
