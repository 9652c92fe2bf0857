package wal

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

func TestWorkersAreAskedOneAfterAnother(t *testing.T) {
	t.Parallel()
	y := workers(t, reclaims(8, 20*time.Millisecond), says(404, "<html>"), reclaims(3, 20*time.Millisecond))
	l := newLedger(t)
	out := merge(t, options(t, l, y), due("a", "b"))
	if len(out) != 6 {
		t.Fatalf("%d answers", len(out))
	}
	for i, want := range []struct {
		target    string
		endpoint  int
		status    int64
		reclaimed int64
	}{{"a", 0, 200, 8}, {"a", 1, 404, 0}, {"a", 2, 200, 3}, {"b", 0, 200, 8}, {"b", 1, 404, 0}, {"b", 2, 200, 3}} {
		o := out[i]
		if o.Target != want.target || o.Store != "rk" || o.Endpoint != y.endpoints[want.endpoint] || *o.Status != want.status || o.Reclaimed == nil || *o.Reclaimed != want.reclaimed || o.Error != nil {
			t.Errorf("answer %d: %+v", i, o)
		}
	}
	if y.peak != 1 {
		t.Errorf("%d in flight", y.peak)
	}
	if c := cooldown(t, l, ledger.KindMergeWAL, "a"); c.LastSucceededAt == nil || c.ConsecutiveFailures != 0 {
		t.Errorf("%+v", c)
	}
	if isLocked(t, l, "a") || isLocked(t, l, "b") {
		t.Error("a lock is left")
	}
}

func TestBadAnswers(t *testing.T) {
	t.Parallel()
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	for _, tt := range []struct {
		name    string
		worker  http.HandlerFunc // nil: nobody listens
		status  int64            // 0: none
		err     string
		class   string
		goesOn  bool // the next worker is asked
		keeping bool // the lock is left to run out
	}{
		{"a server error", says(500, "no"), 500, "answered 500", "bad_status", true, false},
		{"a refusal", says(403, "no"), 403, "answered 403", "bad_status", true, false},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, 307, "answered 307", "bad_status", true, false},
		{"a page", says(200, "<html>welcome</html>"), 200, "is this a worker?", "bad_answer", true, false},
		{"other JSON", says(200, `{"ok":true}`), 200, "is this a worker?", "bad_answer", true, false},
		{"no answer at all", says(204, ""), 204, "is this a worker?", "bad_answer", true, false},
		{"a negative number", says(200, `{"reclaimed":-1}`), 200, "is this a worker?", "bad_answer", true, false},
		{"an endless answer", says(200, `{"reclaimed":1,"x":"`+strings.Repeat("x", 1<<20)+`"}`), 200, "is this a worker?", "bad_answer", true, false},
		{"nobody there", nil, 0, "cannot be reached", "unreachable", true, false},
		{"a hang", hangs, 0, "no answer within", "timeout", false, true},
		{"a cut", cuts, 0, "the connection broke", "connection_cut", false, true},
		{"a cut in the answer", cutsMidway, 200, "the connection broke", "connection_cut", false, true},
		{"a proxy that lost the worker", says(504, ""), 504, "answered 504", "bad_status", false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := tt.worker
			if h == nil {
				h = says(200, "")
			}
			y := workers(t, h, reclaims(1, 0))
			if tt.worker == nil {
				y.endpoints[0] = dead.URL
			}
			l := newLedger(t)
			o := options(t, l, y)
			o.Timeout = 300 * time.Millisecond
			out := merge(t, o, due("a"))
			want := 1
			if tt.goesOn {
				want = 2
			}
			if len(out) != want {
				t.Fatalf("%d answers, want %d: %+v", len(out), want, out)
			}
			if out[0].Error == nil || !strings.Contains(*out[0].Error, tt.err) || out[0].Reclaimed != nil || (out[0].Status == nil) != (tt.status == 0) || out[0].Status != nil && *out[0].Status != tt.status {
				t.Errorf("%+v %v", out[0], *out[0].Error)
			}
			c := cooldown(t, l, ledger.KindMergeWAL, "a")
			if c.ConsecutiveFailures != 1 || c.LastErrorClass == nil || *c.LastErrorClass != tt.class || c.LastSucceededAt != nil {
				t.Errorf("cooldown %+v", c)
			}
			if got := isLocked(t, l, "a"); got != tt.keeping {
				t.Errorf("locked: %v", got)
			}
			for _, r := range y.requests() {
				if strings.Contains(r, "elsewhere") || !strings.Contains(r, "POST") {
					t.Errorf("asked %s", r)
				}
			}
		})
	}
}

func TestThreeFailuresCoolMergesDownAndNothingElse(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	bad := true
	y := workers(t, reclaims(1, 0), func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if bad {
			w.WriteHeader(500)
			return
		}
		fmt.Fprint(w, `{"reclaimed":0}`)
	})
	l := newLedger(t)
	pass := func(force bool) int {
		o := options(t, l, y)
		o.Force = force
		return len(merge(t, o, due("a")))
	}
	for i := range 3 {
		if n := pass(false); n != 2 {
			t.Errorf("pass %d asked %d workers", i+1, n)
		}
	}
	c := cooldown(t, l, ledger.KindMergeWAL, "a")
	if !c.Active || c.ConsecutiveFailures != 3 || !strings.Contains(*c.LastError, y.endpoints[1]) {
		t.Errorf("%+v", c)
	}
	if n := pass(false); n != 0 {
		t.Errorf("a cooled target is merged: %d", n)
	}
	uri := target("a", "").Location.Canonical()
	for _, k := range []ledger.Kind{ledger.KindCheck, ledger.KindRepair} {
		if due, cooling, err := l.Due(t.Context(), k, []string{uri}); err != nil || len(due) != 1 || len(cooling) != 0 {
			t.Errorf("%s: due %v, cooling %v, %v", k, due, cooling, err)
		}
	}
	// A success ends the count of merges alone.
	if _, err := l.Fail(t.Context(), ledger.DefaultCooldown(), ledger.Failure{Kind: ledger.KindRepair, Target: uri, Class: "failed", Text: "x"}); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	bad = false
	mu.Unlock()
	if n := pass(true); n != 2 {
		t.Errorf("forced: %d", n)
	}
	if c := cooldown(t, l, ledger.KindMergeWAL, "a"); c.Active || c.ConsecutiveFailures != 0 {
		t.Errorf("after a success: %+v", c)
	}
	if c := cooldown(t, l, ledger.KindRepair, "a"); c.ConsecutiveFailures != 1 {
		t.Errorf("the count of repairs: %+v", c)
	}
}

func TestTwoPassesAtOnceMergeEachTargetOnce(t *testing.T) {
	t.Parallel()
	y := workers(t, reclaims(1, 30*time.Millisecond), reclaims(1, 30*time.Millisecond), reclaims(1, 30*time.Millisecond))
	l := newLedger(t)
	o := options(t, l, y)
	var wg sync.WaitGroup
	for i := range 3 {
		mine := o
		mine.Owner = fmt.Sprint("pass ", i)
		wg.Go(func() {
			if _, err := Merge(t.Context(), due("a", "b"), mine); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := y.requests(); len(got) != 6 {
		t.Errorf("%d requests: %v", len(got), got)
	}
	for path, n := range y.most {
		if n != 1 {
			t.Errorf("%s: %d in flight", path, n)
		}
	}
	// The next pass merges again.
	if out := merge(t, options(t, l, y), due("a")); len(out) != 3 {
		t.Errorf("%d answers", len(out))
	}
}

// Two passes counted the same generations; the second comes when the first is done, or
// has failed: nothing is merged twice, and no failure counted twice, for one count.
func TestWhatAnotherPassDidSinceIsNotDoneAgain(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{"merged": reclaims(8, 0), "failed": says(500, "")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := workers(t, answer)
			l := newLedger(t)
			first, second := options(t, l, y), options(t, l, y)
			if out := merge(t, first, due("a")); len(out) != 1 {
				t.Errorf("the first: %+v", out)
			}
			if out := merge(t, second, due("a")); len(out) != 0 || len(y.requests()) != 1 {
				t.Errorf("the second: %+v", out)
			}
			if out := merge(t, options(t, l, y), due("a")); len(out) != 1 {
				t.Errorf("the next: %+v", out)
			}
		})
	}
}

func TestALockedTargetIsLeftAlone(t *testing.T) {
	t.Parallel()
	y := workers(t, reclaims(1, 0))
	l := newLedger(t)
	if _, err := l.Acquire(t.Context(), target("a", "").Location.Canonical(), "a repair", time.Minute); err != nil {
		t.Fatal(err)
	}
	out := merge(t, options(t, l, y), due("a", "b"))
	if len(out) != 1 || out[0].Target != "b" || cooldown(t, l, ledger.KindMergeWAL, "a").ConsecutiveFailures != 0 {
		t.Errorf("%+v", out)
	}
}

// renewals is a ledger that counts renewals and can take locks away.
type renewals struct {
	ledger.Ledger
	mu     sync.Mutex
	count  int
	fenced bool
}

// Renew implements ledger.Locks.
func (r *renewals) Renew(ctx context.Context, l ledger.Lease, d time.Duration) (ledger.Lease, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	if r.fenced {
		return l, ledger.ErrFenced
	}
	return r.Ledger.Renew(ctx, l, d)
}

func TestALongMergeKeepsItsLock(t *testing.T) {
	t.Parallel()
	y := workers(t, reclaims(1, 3500*time.Millisecond))
	r := &renewals{Ledger: newLedger(t)}
	o := options(t, r.Ledger, y)
	o.Ledger, o.Lease = r, 2*time.Second
	done := make(chan []reconcile.MergeOutcome)
	go func() {
		out, err := Merge(t.Context(), due("a"), o)
		if err != nil {
			t.Error(err)
		}
		done <- out
	}()
	time.Sleep(500 * time.Millisecond)
	if !isLocked(t, r.Ledger, "a") {
		t.Error("the lock ran out")
	}
	if out := <-done; len(out) != 1 || out[0].Error != nil {
		t.Errorf("%+v", out)
	}
	if r.count < 3 {
		t.Errorf("%d renewals", r.count)
	}
}

func TestALostLockStopsAtOnce(t *testing.T) {
	t.Parallel()
	broken := make(chan struct{})
	y := workers(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done(); close(broken) }, reclaims(1, 0))
	r := &renewals{Ledger: newLedger(t), fenced: true}
	o := options(t, r.Ledger, y)
	o.Ledger, o.Lease = r, 300*time.Millisecond
	o.Timeout = time.Minute
	begun := time.Now()
	out := merge(t, o, due("a"))
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("after %s", took)
	}
	if len(out) != 1 || out[0].Error == nil || !strings.Contains(*out[0].Error, "lock was lost") {
		t.Errorf("%+v", out)
	}
	select {
	case <-broken:
	case <-time.After(5 * time.Second):
		t.Error("the request goes on")
	}
	if c := cooldown(t, r.Ledger, ledger.KindMergeWAL, "a"); c.ConsecutiveFailures != 0 {
		t.Errorf("counted as a failure: %+v", c)
	}
}

func TestAnEndedPassAwaitsWhatWasSentAndBeginsNoMore(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		takes time.Duration
		err   string
	}{{"an answer that comes", 200 * time.Millisecond, ""}, {"an answer that does not", time.Minute, "no answer yet when the pass ended"}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			y := workers(t, func(w http.ResponseWriter, r *http.Request) {
				cancel(errors.New("interrupted"))
				select {
				case <-time.After(tt.takes):
					fmt.Fprint(w, `{"reclaimed":4}`)
				case <-r.Context().Done():
				}
			}, reclaims(1, 0))
			l := newLedger(t)
			o := options(t, l, y)
			o.Timeout, o.Grace = time.Hour, time.Second
			out, err := Merge(ctx, due("a", "b"), o)
			if err != nil || len(out) != 1 {
				t.Fatalf("%+v, %v", out, err)
			}
			if got := out[0]; tt.err == "" && (got.Error != nil || *got.Reclaimed != 4) || tt.err != "" && (got.Error == nil || !strings.Contains(*got.Error, tt.err)) {
				t.Errorf("%+v", got)
			}
			if c := cooldown(t, l, ledger.KindMergeWAL, "a"); c.ConsecutiveFailures != 0 || c.LastSucceededAt != nil {
				t.Errorf("counted: %+v", c)
			}
			if got := isLocked(t, l, "a"); got != (tt.err != "") {
				t.Errorf("locked: %v", got)
			}
		})
	}
}

func TestAWorkerThatNeverAnswersIsNotAskedForEveryTarget(t *testing.T) {
	t.Parallel()
	y := workers(t, hangs, reclaims(1, 0))
	l := newLedger(t)
	o := options(t, l, y)
	o.Timeout = 100 * time.Millisecond
	out := merge(t, o, due("a", "b", "c", "d", "e"))
	var silent, well int
	for _, x := range out {
		if x.Error != nil {
			silent++
		} else {
			well++
		}
	}
	if silent != 3 || well != 2 {
		t.Errorf("%d without an answer, %d well: %+v", silent, well, out)
	}
	// Half a round is no success.
	if c := cooldown(t, l, ledger.KindMergeWAL, "d"); c.LastSucceededAt != nil || c.ConsecutiveFailures != 0 {
		t.Errorf("%+v", c)
	}
}

func TestAPassWhoseTimeIsUpBeginsOneTarget(t *testing.T) {
	t.Parallel()
	y := workers(t, reclaims(1, 0), reclaims(1, 0))
	l := newLedger(t)
	o := options(t, l, y)
	o.Until = time.Now().Add(-time.Minute)
	if out := merge(t, o, due("a", "b")); len(out) != 2 || out[0].Target != "a" || out[1].Target != "a" {
		t.Errorf("%+v", out)
	}
	o.Until = time.Now().Add(time.Hour)
	if out := merge(t, o, due("c", "d")); len(out) != 4 {
		t.Errorf("%+v", out)
	}
}

func TestALedgerThatIsGoneEndsTheMerges(t *testing.T) {
	t.Parallel()
	y := workers(t, reclaims(1, 0))
	l := newLedger(t)
	o := options(t, l, y)
	_ = l.Close()
	if out, err := Merge(t.Context(), due("a"), o); err == nil || len(out) != 0 || len(y.requests()) != 0 {
		t.Errorf("%+v, %v, %v", out, err, y.requests())
	}
}

// The transport that merges use by default sends nothing twice by itself.
func TestARequestIsNeverSentTwice(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conns := make(chan struct{}, 16)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns <- struct{}{}
			buf := make([]byte, 1)
			_, _ = c.Read(buf)
			_ = c.Close()
		}
	}()
	y := &yard{endpoints: []string{"http://" + l.Addr().String()}}
	led := newLedger(t)
	merge(t, options(t, led, y), due("a"))
	if n := len(conns); n != 1 {
		t.Errorf("%d connections", n)
	}
}
