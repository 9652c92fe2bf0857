package wrap_test

import (
	"os"
	"path"
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/file"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/internal/objstore/objstoretest"
	"github.com/rocketkeep/reconcile/internal/objstore/wrap"
)

// decorators are all of them, for writers; the last is the stack in use.
var decorators = map[string]func(objstore.Writer) objstore.Writer{
	"count": func(w objstore.Writer) objstore.Writer { return wrap.NewCountWriter(w, new(wrap.Meter)) },
	"observe": func(w objstore.Writer) objstore.Writer {
		return wrap.NewObserveWriter(w, func(wrap.Observation) {})
	},
	"limit": func(w objstore.Writer) objstore.Writer {
		return wrap.NewLimitWriter(w, wrap.NewLimiter(2, 1e6))
	},
	"adaptive": func(w objstore.Writer) objstore.Writer { return wrap.NewAdaptiveWriter(w, wrap.NewGate(nil)) },
	"retry":    func(w objstore.Writer) objstore.Writer { return wrap.NewRetryWriter(w, wrap.RetryOptions{}) },
	"all": func(w objstore.Writer) objstore.Writer {
		m := new(wrap.Meter)
		w = wrap.NewLimitWriter(wrap.NewCountWriter(w, m), wrap.NewLimiter(2, 1e6))
		return wrap.NewRetryWriter(wrap.NewAdaptiveWriter(w, wrap.NewGate(nil)), wrap.RetryOptions{Meter: m})
	},
}

// TestConformanceWithPages runs every decorator over a store that lists in pages.
func TestConformanceWithPages(t *testing.T) {
	t.Parallel()
	for name, decorate := range decorators {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objstoretest.Run(t, func(testing.TB) (objstore.Writer, objstoretest.Helper) {
				s := memstore.New(memstore.Options{Versions: true})
				s.RemoveBucket(objstore.Location{Scheme: "mem", Bucket: "absent"})
				w := decorate(s)
				return w, objstoretest.Helper{
					Root:   objstore.Location{Scheme: "mem", Bucket: "bucket"},
					Remove: func(_ testing.TB, loc objstore.Location) { s.Remove(loc) },
					Absent: w, AbsentAt: objstore.Location{Scheme: "mem", Bucket: "absent"},
					Versions: true,
				}
			})
		})
	}
}

// TestConformanceWithoutPages runs the stack over a store that does not.
func TestConformanceWithoutPages(t *testing.T) {
	t.Parallel()
	objstoretest.Run(t, func(t testing.TB) (objstore.Writer, objstoretest.Helper) {
		root := file.Resolve(objstore.Location{Scheme: "file", Key: t.TempDir()})
		s, err := file.New(root)
		if err != nil {
			t.Fatal(err)
		}
		gone := root.Join("absent")
		absent, err := file.New(gone)
		if err != nil {
			t.Fatal(err)
		}
		return decorators["all"](s), objstoretest.Helper{
			Root: root,
			Remove: func(t testing.TB, loc objstore.Location) {
				if err := os.Remove(loc.Key); err != nil {
					t.Fatal(err)
				}
			},
			Absent: decorators["all"](absent), AbsentAt: gone,
			Odd: func(key string) bool { return path.Clean(key) == key && len(key) < 255 && key != "k/below" },
		}
	})
}

func TestAReaderStaysAReader(t *testing.T) {
	t.Parallel()
	m, g, l := new(wrap.Meter), wrap.NewGate(nil), wrap.NewLimiter(0, 0)
	for _, inner := range []objstore.Writer{memstore.New(memstore.Options{}), unpaged{memstore.New(memstore.Options{})}} {
		_, paged := inner.(objstore.Pager)
		for name, r := range map[string]objstore.Reader{
			"count": wrap.NewCount(inner, m), "limit": wrap.NewLimit(inner, l), "adaptive": wrap.NewAdaptive(inner, g),
			"retry": wrap.NewRetry(inner, wrap.RetryOptions{}), "observe": wrap.NewObserve(inner, func(wrap.Observation) {}),
		} {
			if _, ok := r.(objstore.Creator); ok {
				t.Errorf("%s: a Reader came out with Create", name)
			}
			if _, ok := r.(objstore.Replacer); ok {
				t.Errorf("%s: a Reader came out with Replace", name)
			}
			if _, ok := r.(objstore.Pager); ok != paged {
				t.Errorf("%s: pages in: %v, out: %v", name, paged, ok)
			}
		}
		for name, decorate := range decorators {
			if _, ok := decorate(inner).(objstore.Pager); ok != paged {
				t.Errorf("%s for writers: pages in: %v, out: %v", name, paged, ok)
			}
		}
	}
}

// unpaged hides ListPage.
type unpaged struct{ objstore.Writer }
