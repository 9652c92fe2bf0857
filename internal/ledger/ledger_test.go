package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

func TestCooldownLengths(t *testing.T) {
	t.Parallel()
	var got []string
	for n := range int64(11) {
		got = append(got, DefaultCooldown().Length(n).String())
	}
	if d := cmp.Diff("0s 0s 0s 10m0s 20m0s 40m0s 1h20m0s 2h40m0s 5h20m0s 6h0m0s 6h0m0s", strings.Join(got, " ")); d != "" {
		t.Error(d)
	}
	for name, c := range map[string]struct {
		p        CooldownPolicy
		failures int64
		want     time.Duration
	}{
		"never":                            {CooldownPolicy{Base: time.Minute, Max: time.Hour}, 100, 0},
		"never, negative":                  {CooldownPolicy{After: -1, Base: time.Minute, Max: time.Hour}, 100, 0},
		"more failures than fit a float":   {DefaultCooldown(), 1 << 62, 6 * time.Hour},
		"a first wait beyond the longest":  {CooldownPolicy{After: 1, Base: time.Hour, Max: time.Minute}, 1, time.Minute},
		"no base":                          {CooldownPolicy{After: 1, Max: time.Hour}, 5, 0},
		"a factor that would shrink":       {CooldownPolicy{After: 1, Base: time.Minute, Factor: 0.5, Max: time.Hour}, 2, 2 * time.Minute},
		"the same length each time":        {CooldownPolicy{After: 1, Base: time.Minute, Factor: 1, Max: time.Hour}, 9, time.Minute},
		"re-fetching, from the first on":   {DefaultRefetch(), 1, 10 * time.Minute},
		"re-fetching, a day at the utmost": {DefaultRefetch(), 9, 24 * time.Hour},
	} {
		if got := c.p.Length(c.failures); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// scripted is a lock whose renewals answer as told.
type scripted struct {
	Locks
	renew func(n int64) error
	n     atomic.Int64
}

func (s *scripted) Renew(ctx context.Context, l Lease, length time.Duration) (Lease, error) {
	err := s.renew(s.n.Add(1))
	if errors.Is(err, errHang) {
		<-ctx.Done()
		return Lease{}, ctx.Err()
	}
	l.Until = l.Until.Add(length)
	return l, err
}

var errHang = errors.New("hang")

func TestALeaseIsKeptOrTheWorkEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		renew func(n int64) error
		// lost is after how many seconds the work ends; 0 is never.
		lost float64
	}{
		"every renewal is granted":                     {func(int64) error { return nil }, 0},
		"another took the lock":                        {func(n int64) error { return map[bool]error{true: ErrFenced}[n == 3] }, 60},
		"the ledger is away for a moment":              {func(n int64) error { return map[bool]error{true: ErrUnreachable}[n%3 == 1] }, 0},
		"the ledger is away":                           {func(int64) error { return ErrUnreachable }, 60},
		"the ledger goes away after two renewals":      {func(n int64) error { return map[bool]error{true: ErrUnreachable}[n > 2] }, 100},
		"renewals hang":                                {func(int64) error { return errHang }, 60},
		"renewals hang after one that is granted":      {func(n int64) error { return map[bool]error{true: errHang}[n > 1] }, 80},
		"two of three hang, which is just in the time": {func(n int64) error { return map[bool]error{true: errHang}[n%2 == 1] }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				ctx, stop := Keep(t.Context(), &scripted{renew: c.renew}, Lease{Epoch: 1}, time.Minute)
				defer stop()
				select {
				case <-ctx.Done():
					if got := time.Since(start).Seconds(); got != c.lost || !errors.Is(context.Cause(ctx), ErrFenced) {
						t.Errorf("ended after %v s by %v, want %v s", got, context.Cause(ctx), c.lost)
					}
				case <-time.After(time.Hour):
					if c.lost != 0 {
						t.Error("works on without the lock")
					}
				}
			})
		})
	}
}

func TestAFindingAsJSONHoldsItsHistory(t *testing.T) {
	t.Parallel()
	f := Finding{Finding: reconcile.NewFinding(reconcile.Target{Name: "x"}, reconcile.Reference{Role: reconcile.RoleData, Path: "data/x"}, time.Unix(0, 0)), History: History{TargetURI: "s3://b/x", SeenCount: 3}}
	b, err := json.Marshal([]Finding{f})
	if err != nil {
		t.Fatal(err)
	}
	var m []map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	if m[0]["target"] != "x" || m[0]["target_uri"] != "s3://b/x" || m[0]["seen_count"] != 3.0 || m[0]["version"] != nil || m[0]["resolved_at"] != nil || m[0]["depth"] != "head" {
		t.Errorf("%s", b)
	}
}

func TestFiltersMatchNames(t *testing.T) {
	t.Parallel()
	x := Target{Name: "table:dir/x", Store: "prod", URI: "s3://b/dir/x.lance"}
	for pattern, want := range map[string]bool{
		"table:dir/x": true, "table:*": true, "*x": true, "prod/table:dir/x": true, "prod/*": true, "s3://b/*": true, "x": false, "dir/*": false, "other/*": false, "table:dir/?": true,
	} {
		if got := (Filter{Targets: []string{"nothing", pattern}}).Matches(x); got != want {
			t.Errorf("%q: %v, want %v", pattern, got, want)
		}
	}
	if !(Filter{}).Matches(x) {
		t.Error("no pattern chooses nothing")
	}
	if err := (Filter{Targets: []string{"[a"}}).Validate(); !errors.Is(err, ErrBadPattern) {
		t.Errorf("a pattern that cannot be read: %v", err)
	}
}

func TestTargetsAreKnownByTheirCanonicalURI(t *testing.T) {
	t.Parallel()
	got := TargetOf(reconcile.Target{Name: "x", Store: "s", Kind: "rollout", Location: objstore.Location{Scheme: "s3", Endpoint: "h:9000", Bucket: "b", Key: "x.rollout.lance/"}})
	if d := cmp.Diff(Target{URI: "s3://b@h:9000/x.rollout.lance", Name: "x", Store: "s", Kind: "rollout"}, got); d != "" {
		t.Error(d)
	}
}

func TestALockedErrorSaysWho(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("lock: %w", &LockedError{URI: "s3://b/x", Owner: "host1/42", Until: time.Unix(0, 0)})
	if !errors.Is(err, ErrLocked) || errors.Is(err, ErrFenced) || !strings.Contains(err.Error(), "host1/42 until 1970-01-01T00:00:00Z") {
		t.Error(err)
	}
}
