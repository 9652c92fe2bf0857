package wrap_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/faultstore"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/internal/objstore/wrap"
)

func TestCount(t *testing.T) {
	t.Parallel()
	f, _ := faulty(rule("stat", 2, 1, faultstore.Status(503, "SlowDown")))
	m := new(wrap.Meter)
	w := wrap.NewCountWriter(f, m)
	_, _ = w.Stat(t.Context(), at)
	_, _ = w.Stat(t.Context(), at)
	for _, op := range []string{"restat", "probe", "get", "list", "versions"} {
		if err := ask(t.Context(), w, op); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = w.Create(t.Context(), at, strings.NewReader(""), 0)
	_, _ = w.Replace(t.Context(), at, "x", strings.NewReader(""), 0)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = w.Stat(ended, at) // not sent, not counted
	if diff := cmp.Diff(wrap.Counters{Head: 3, Get: 2, List: 2, Put: 2, Throttled: 1}, m.Snapshot()); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}

// busy notes how many Stats are under way at once.
type busy struct {
	*memstore.Store
	now, most atomic.Int64
}

func (b *busy) Stat(context.Context, objstore.Location) (objstore.Attrs, error) {
	n := b.now.Add(1)
	defer b.now.Add(-1)
	for {
		m := b.most.Load()
		if n <= m || b.most.CompareAndSwap(m, n) {
			break
		}
	}
	time.Sleep(10 * time.Millisecond)
	return objstore.Attrs{}, nil
}

func TestLimitInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &busy{Store: memstore.New(memstore.Options{})}
		l := wrap.NewLimiter(3, 0)
		stores := []objstore.Reader{wrap.NewLimit(b, l), wrap.NewLimit(b, l)} // one limiter for both
		var wg sync.WaitGroup
		start := time.Now()
		for i := range 30 {
			wg.Go(func() {
				if _, err := stores[i%2].Stat(t.Context(), at); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if b.most.Load() != 3 || time.Since(start) != 100*time.Millisecond {
			t.Errorf("%d at once, 30 took %s", b.most.Load(), time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		for range 4 {
			wg.Go(func() { _, _ = stores[0].Stat(ctx, at) })
		}
		wg.Wait() // the fourth gave up waiting
		if n := b.now.Load(); n != 0 {
			t.Errorf("%d still under way", n)
		}
	})
}

// TestAnOpenBodyHoldsNoSlot: a caller that reads one object while asking for others
// must not wait for itself.
func TestAnOpenBodyHoldsNoSlot(t *testing.T) {
	t.Parallel()
	f, _ := faulty()
	for name, r := range map[string]objstore.Reader{"paged": wrap.NewLimit(memstoreWith(t), wrap.NewLimiter(1, 0)), "flat": wrap.NewLimit(f, wrap.NewLimiter(1, 0))} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		rc, _, err := r.Get(ctx, at, objstore.Range{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Stat(ctx, at); err != nil {
			t.Errorf("%s: stat beside an open body: %v", name, err)
		}
		if _, err := io.Copy(io.Discard, rc); err != nil {
			t.Error(err)
		}
		if err := rc.Close(); err != nil {
			t.Error(err)
		}
		for _, err := range r.List(ctx, at.Container(), "") {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.Stat(ctx, at); err != nil {
				t.Errorf("%s: stat within a listing: %v", name, err)
			}
		}
	}
}

func memstoreWith(t *testing.T) *memstore.Store {
	t.Helper()
	m := memstore.New(memstore.Options{})
	m.Put(at, []byte("0123456789"))
	return m
}

func TestLimitPerSecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := wrap.NewLimit(memstoreWith(t), wrap.NewLimiter(0, 50))
		var wg sync.WaitGroup
		start := time.Now()
		for range 101 {
			wg.Go(func() {
				if _, err := r.Stat(t.Context(), at); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if d := time.Since(start); d < 1990*time.Millisecond || d > 2010*time.Millisecond {
			t.Errorf("101 requests at 50/s took %s", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, _ = r.Stat(ctx, at)
		if _, err := r.Stat(ctx, at); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a request whose turn is after its end: %v", err)
		}
	})
}

// capacity is a store that refuses what comes faster than its rate.
type capacity struct {
	*memstore.Store
	perSecond int

	mu      sync.Mutex
	second  int64
	n       int
	refused int
}

func (c *capacity) Stat(_ context.Context, loc objstore.Location) (objstore.Attrs, error) {
	time.Sleep(time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := time.Now().Unix(); s != c.second {
		c.second, c.n = s, 0
	}
	if c.n++; c.n > c.perSecond {
		c.refused++
		return objstore.Attrs{}, &objstore.Error{Op: "stat", Location: loc, Status: 503, Code: "SlowDown", Err: objstore.ErrThrottled}
	}
	return objstore.Attrs{}, nil
}

// TestThrottlingSlowsASweepInsteadOfFailingIt: 64 workers against a store that takes
// 200 requests a second get every answer, at most of the store's speed.
func TestThrottlingSlowsASweepInsteadOfFailingIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &capacity{Store: memstore.New(memstore.Options{}), perSecond: 200}
		g := wrap.NewGate(nil)
		r := wrap.NewRetry(wrap.NewAdaptive(c, g), wrap.RetryOptions{})
		const total = 20000
		var (
			wg   sync.WaitGroup
			next atomic.Int64
			bad  atomic.Int64
		)
		start := time.Now()
		for range 64 {
			wg.Go(func() {
				for next.Add(1) <= total {
					if _, err := r.Stat(t.Context(), at); err != nil {
						bad.Add(1)
						t.Log(err)
					}
				}
			})
		}
		wg.Wait()
		took := time.Since(start)
		t.Logf("%d requests at 200/s: %s, %d refused, rate now %.0f", total, took, c.refused, g.Rate())
		if bad.Load() > 0 {
			t.Errorf("%d of %d failed", bad.Load(), total)
		}
		if took > 200*time.Second { // 100s is the store's best
			t.Errorf("took %s", took)
		}
		if c.refused > total/5 {
			t.Errorf("%d refusals", c.refused)
		}
	})
}

func TestTheGateOpensAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, _ := faulty(rule("stat", 101, 1, faultstore.Status(503, "SlowDown")))
		g := wrap.NewGate(nil)
		r := wrap.NewAdaptive(f, g)
		for range 101 {
			_, _ = r.Stat(t.Context(), at)
			time.Sleep(5 * time.Millisecond)
		}
		if got := g.Rate(); got < 30 || got > 101 {
			t.Errorf("after a refusal at 101 requests in half a second the rate is %v", got)
		}
		cut := g.Rate()
		start := time.Now()
		for g.Rate() != 0 && time.Since(start) < time.Hour {
			if _, err := r.Stat(t.Context(), at); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(start); d < 5*time.Second || d > 5*time.Minute {
			t.Errorf("open again after %s, from %v", d, cut)
		}
	})
}

func TestTheGateWaitsAsLongAsTheStoreAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, _ := faulty(rule("stat", 1, 1, faultstore.Answer(objstore.Error{Status: 429, RetryAfter: 4 * time.Second, Err: objstore.ErrThrottled})))
		r := wrap.NewAdaptive(f, wrap.NewGate(nil))
		_, _ = r.Stat(t.Context(), at)
		start := time.Now()
		if _, err := r.Restat(t.Context(), at); err != nil || time.Since(start) != 4*time.Second {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}
