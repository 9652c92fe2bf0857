package pass

import (
	"errors"
	"slices"
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/blobs/refs"
)

// Of two objects that the metadata names one is absent; whether that counts depends on
// what the store said of the other.
func TestADamagedObjectProvesAnAbsenceAsWellAsAWholeOne(t *testing.T) {
	t.Parallel()
	const a, b = root + "/data/a", root + "/data/b"
	answers := func(at objstore.Attrs) func(string, int) (objstore.Attrs, error) {
		return func(string, int) (objstore.Attrs, error) { return at, nil }
	}
	for _, tt := range []struct {
		name string
		beside,
		absent string
		set func(s *scripted, ref *reconcile.Reference)
	}{
		{"a whole one proves it", "", "missing", func(*scripted, *reconcile.Reference) {}},
		{"one of another size proves it", "size_mismatch", "missing", func(s *scripted, _ *reconcile.Reference) { s.present(50, a) }},
		{"one of another checksum proves it", "checksum_mismatch", "missing", func(s *scripted, ref *reconcile.Reference) {
			ref.Checksum = "md5:1"
			s.answer[a] = answers(objstore.Attrs{Size: 100, Checksums: map[string]string{"md5": "md5:2"}})
		}},
		{"one that is too short for its format proves it", "unreadable", "missing", func(s *scripted, ref *reconcile.Reference) {
			ref.Size, ref.MinSize = 0, 16
			s.present(4, a)
		}},
		{"an archived one proves it", "archived", "missing", func(s *scripted, _ *reconcile.Reference) {
			s.answer[a] = answers(objstore.Attrs{Size: 100, Archived: true})
		}},
		{"one of which HEAD and GET say different sizes does not", "undecided", "undecided", func(s *scripted, _ *reconcile.Reference) {
			s.answer[a] = func(op string, _ int) (objstore.Attrs, error) {
				if op == "probe" {
					return objstore.Attrs{Size: 70}, nil
				}
				return objstore.Attrs{Size: 50}, nil
			}
		}},
		{"one that answers without a length does not", "undecided", "undecided", func(s *scripted, _ *reconcile.Reference) { s.present(objstore.Unknown, a) }},
		{"one that is refused does not", "denied", "undecided", func(s *scripted, _ *reconcile.Reference) { s.answer[a] = failing(403, objstore.ErrDenied) }},
		{"one that is gone at the second look does not", "undecided", "undecided", func(s *scripted, _ *reconcile.Reference) {
			s.answer[a] = func(op string, n int) (objstore.Attrs, error) {
				if op == "stat" && n == 1 || op == "probe" && n == 1 {
					return objstore.Attrs{Size: 50}, nil
				}
				return objstore.Attrs{}, notFound()
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newScripted()
			src := table(s)
			src.facts.Control = objstore.Location{}
			src.refs = src.refs[:2]
			tt.set(s, &src.refs[0])
			delete(s.answer, b)
			opts, targets, _ := options(s, src)
			out, err := Look(t.Context(), targets, opts)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, f := range out.Findings {
				got[f.Path] = f.Verdict.String()
			}
			if got["data/a"] != tt.beside || got["data/b"] != tt.absent {
				t.Errorf("a is %q and b %q, want %q and %q", got["data/a"], got["data/b"], tt.beside, tt.absent)
			}
		})
	}
}

// What is whole is asked first, and what is damaged only when none of it answers.
func TestWholeObjectsAreAskedBeforeDamagedOnes(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		s := newScripted()
		src := table(s)
		src.facts.Control = objstore.Location{}
		s.present(50, root+"/data/a")
		delete(s.answer, root+"/data/b")
		opts, targets, clock := options(s, src)
		var before int
		clock.onSleep = func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			before = s.calls["stat "+root+"/data/a"]
			if lost {
				s.answer[root+"/data/c"] = failing(500, errors.New("internal"))
			}
		}
		out, err := Look(t.Context(), targets, opts)
		if err != nil {
			t.Fatal(err)
		}
		asked := s.calls["stat "+root+"/data/a"] - before
		if want := map[bool]int{false: 0, true: 2}[lost]; asked != want {
			t.Errorf("whole one lost: %v; the damaged one was asked %d times as a control, want %d", lost, asked, want)
		}
		if f := finding(t, out, "data/b"); f.Verdict != reconcile.Missing {
			t.Errorf("whole one lost: %v; verdict %s", lost, f.Verdict)
		}
	}
}

// An object that only an alternate place holds proves that place, and says nothing for
// the place where it is not.
func TestAControlIsProvenWhereItLies(t *testing.T) {
	t.Parallel()
	s := newScripted()
	src := table(s)
	src.facts.Control = objstore.Location{}
	src.refs = src.refs[:2]
	delete(s.answer, root+"/data/a")
	delete(s.answer, root+"/data/b")
	src.refs[0].Alternates = []reconcile.Place{{Base: at("other"), Location: at("other/a")}}
	src.refs[1].Base, src.refs[1].Location = at("other"), at("other/b")
	s.present(100, "other/a")
	opts, targets, _ := options(s, src)
	out, err := Look(t.Context(), targets, opts)
	if err != nil {
		t.Fatal(err)
	}
	if f := finding(t, out, "data/b"); f.Verdict != reconcile.Missing {
		t.Errorf("verdict %s, want missing: its place is proven by the other object's copy", f.Verdict)
	}
}

// A look that goes on where it stopped has no controls of its first part; what was
// damaged there is looked at again, and proves as much.
func TestAResumedLookHasItsDamagedObjectsAsControls(t *testing.T) {
	t.Parallel()
	p, _ := large(t, 12_000)
	p.gone("k000002")
	p.store.PutSparse(p.at("k000001"), 2)
	p.until("k011000")
	if cp := p.checkpoint(); cp == nil || !slices.Equal(cp.Suspects, []string{"k000001", "k000002"}) {
		t.Fatalf("checkpoint %+v", cp)
	}
	// Nothing is left behind the place where it stopped.
	p.recs.list = slices.DeleteFunc(slices.Clone(p.recs.list), func(r refs.Record) bool { return r.Key >= "k009000" })
	out := p.look(t.Context())
	if f := finding(t, out, "k000002"); f.Verdict != reconcile.Missing {
		t.Errorf("verdict %s %v, want missing", f.Verdict, f.Reason)
	}
	if f := finding(t, out, "k000001"); f.Verdict != reconcile.SizeMismatch {
		t.Errorf("verdict %s, want size_mismatch", f.Verdict)
	}
}
