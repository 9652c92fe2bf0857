package wal

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/ledger/open"
	"github.com/rocketkeep/reconcile/reconcile"
)

// yard is a number of workers that count what is in flight.
type yard struct {
	mu        sync.Mutex
	flying    map[string]int // by path
	most      map[string]int
	all, peak int
	asked     []string // "worker path"
	endpoints []string
}

// workers starts one worker for each handler.
func workers(t *testing.T, handlers ...http.HandlerFunc) *yard {
	t.Helper()
	y := &yard{flying: map[string]int{}, most: map[string]int{}}
	for i, h := range handlers {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			y.mu.Lock()
			y.asked = append(y.asked, fmt.Sprintf("%d %s %s", i, r.Method, r.URL.EscapedPath()))
			y.flying[r.URL.Path]++
			y.all++
			y.most[r.URL.Path], y.peak = max(y.most[r.URL.Path], y.flying[r.URL.Path]), max(y.peak, y.all)
			y.mu.Unlock()
			defer func() {
				y.mu.Lock()
				defer y.mu.Unlock()
				y.flying[r.URL.Path]--
				y.all--
			}()
			h(w, r)
		}))
		t.Cleanup(s.Close)
		y.endpoints = append(y.endpoints, s.URL)
	}
	return y
}

func (y *yard) requests() []string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return append([]string{}, y.asked...)
}

func reclaims(n int, after time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(after)
		fmt.Fprintf(w, `{"reclaimed":%d}`, n)
	}
}

func says(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); fmt.Fprint(w, body) }
}

func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func cuts(w http.ResponseWriter, _ *http.Request) {
	if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
		_ = c.Close()
	}
}

// cutsMidway promises more than it sends.
func cutsMidway(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "100")
	fmt.Fprint(w, `{"recl`)
}

func newLedger(t *testing.T) ledger.Ledger {
	t.Helper()
	l, err := open.Ledger(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"), "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func options(t *testing.T, l ledger.Ledger, y *yard) Options {
	t.Helper()
	now, err := l.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return Options{Endpoints: y.endpoints, Timeout: 5 * time.Second, Ledger: l, Owner: "test", Began: now, Cooldown: ledger.DefaultCooldown(), Now: time.Now,
		Logger: slog.New(slog.DiscardHandler)}
}

func due(names ...string) []Target {
	var out []Target
	for _, n := range names {
		out = append(out, Target{Target: target(n, "rollout"), Pending: 10})
	}
	return out
}

func merge(t *testing.T, o Options, targets []Target) []reconcile.MergeOutcome {
	t.Helper()
	out, err := Merge(t.Context(), targets, o)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// cooldown is the row of a target and kind; the zero value when there is none.
func cooldown(t *testing.T, l ledger.Ledger, k ledger.Kind, name string) ledger.Cooldown {
	t.Helper()
	cs, err := l.ListCooldowns(t.Context(), ledger.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cs {
		if c.Kind == k && c.TargetURI == target(name, "").Location.Canonical() {
			return c
		}
	}
	return ledger.Cooldown{}
}

func isLocked(t *testing.T, l ledger.Ledger, name string) bool {
	t.Helper()
	lease, err := l.Acquire(t.Context(), target(name, "").Location.Canonical(), "somebody", time.Minute)
	if errors.Is(err, ledger.ErrLocked) {
		return true
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	return false
}
