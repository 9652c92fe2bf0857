package peers_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/peers"
)

// fakePeer answers as its fields say.
type fakePeer struct {
	mu        sync.Mutex
	ask       error
	fetch     error
	body      error
	asked     int
	fetched   int
	inFlight  atomic.Int64
	most      atomic.Int64
	holdAsk   chan struct{} // when set, Ask waits for it
	heldCount chan struct{}
}

func (f *fakePeer) Name() string { return "fake://peer" }

func (f *fakePeer) Ask(ctx context.Context, _ reconcile.Reference) (objstore.Attrs, error) {
	n := f.inFlight.Add(1)
	defer f.inFlight.Add(-1)
	for m := f.most.Load(); n > m && !f.most.CompareAndSwap(m, n); m = f.most.Load() {
	}
	f.mu.Lock()
	f.asked++
	err, hold := f.ask, f.holdAsk
	f.mu.Unlock()
	if hold != nil {
		f.heldCount <- struct{}{}
		select {
		case <-hold:
		case <-ctx.Done():
			return objstore.Attrs{}, ctx.Err()
		}
	}
	return objstore.Attrs{Size: 4}, err
}

func (f *fakePeer) Fetch(context.Context, reconcile.Reference) (io.ReadCloser, objstore.Attrs, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fetched++
	if f.fetch != nil {
		return nil, objstore.Attrs{}, f.fetch
	}
	var body io.Reader = strings.NewReader("copy")
	if err := f.body; err != nil {
		body = io.MultiReader(body, readFunc(func([]byte) (int, error) { return 0, err }))
	}
	return io.NopCloser(body), objstore.Attrs{Size: 4}, nil
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

var errSilent = errors.New("no answer")

func TestAPeerThatDoesNotAnswerIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := &clock{}
	f := &fakePeer{ask: errSilent}
	g := peers.Guard(f, c.Now, peers.Limits{})
	ask := func() string {
		_, err := g.Ask(t.Context(), blob("k", 4))
		if errors.Is(err, objstore.ErrNotExist) != (f.ask != nil && errors.Is(f.ask, objstore.ErrNotExist) && peers.Reason(err) != peers.ReasonBreakerOpen) {
			t.Errorf("a no that is none, or none that is: %v", err)
		}
		return peers.Reason(err)
	}
	for range 4 {
		ask()
	}
	f.ask = objstore.ErrNotExist // an answer: it counts from the beginning
	ask()
	f.ask = errSilent
	for range 5 {
		if got := ask(); got != peers.ReasonUnreachable {
			t.Fatal(got)
		}
	}
	for range 100 {
		if got := ask(); got != peers.ReasonBreakerOpen {
			t.Fatal(got)
		}
	}
	if _, _, err := g.Fetch(t.Context(), blob("k", 4)); peers.Reason(err) != peers.ReasonBreakerOpen || f.fetched != 0 {
		t.Errorf("fetched although it does not answer: %v", err)
	}
	if f.asked != 10 {
		t.Errorf("asked %d times", f.asked)
	}
	c.pass(time.Minute)
	if ask(); f.asked != 11 || ask() != peers.ReasonBreakerOpen {
		t.Errorf("one try a minute: asked %d times", f.asked)
	}
	c.pass(59 * time.Second)
	if ask() != peers.ReasonBreakerOpen {
		t.Error("the failed try does not count")
	}
	c.pass(time.Second)
	f.ask = nil
	for range 3 {
		if got := ask(); got != "" {
			t.Errorf("it answers again: %s", got)
		}
	}
	f.ask = errSilent // one failure is not five
	if first, second := ask(), ask(); first != peers.ReasonUnreachable || second != peers.ReasonUnreachable {
		t.Errorf("%s, %s after it had answered", first, second)
	}
}

func TestWhatIsNoFailureOfAPeer(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name string
		ctx  context.Context
		err  error
	}{
		{"an explicit no", t.Context(), objstore.ErrNotExist},
		{"an object outside", t.Context(), reconcile.ErrNotBelow},
		{"an archived object", t.Context(), &peers.Error{Reason: peers.ReasonArchived, Err: objstore.ErrArchived}},
		{"a caller that gave up", t.Context(), &peers.Error{Reason: peers.ReasonInterrupted, Err: context.Canceled}},
		{"a caller's context that ended", ended, errSilent},
	} {
		f := &fakePeer{ask: tt.err}
		g := peers.Guard(f, (&clock{}).Now, peers.Limits{Failures: 1})
		for range 3 {
			_, err := g.Ask(tt.ctx, blob("k", 4))
			if peers.Reason(err) == peers.ReasonBreakerOpen {
				t.Errorf("%s opened the breaker", tt.name)
			}
		}
	}
	f := &fakePeer{ask: objstore.ErrNoSuchBucket}
	g := peers.Guard(f, (&clock{}).Now, peers.Limits{Failures: 1})
	for range 2 {
		_, _ = g.Ask(t.Context(), blob("k", 4)) // counted below
	}
	if f.asked != 1 {
		t.Error("a bucket that is not there is no answer")
	}
}

func TestAPeerThatAnswersAndBreaksOffIsLeftAlone(t *testing.T) {
	t.Parallel()
	f := &fakePeer{body: errSilent}
	g := peers.Guard(f, (&clock{}).Now, peers.Limits{Failures: 3})
	for i := range 3 {
		if _, err := g.Ask(t.Context(), blob("k", 4)); err != nil {
			t.Fatal(err)
		}
		if data, _, err := fetched(t.Context(), g, blob("k", 4)); !errors.Is(err, errSilent) || string(data) != "copy" {
			t.Fatalf("%d: %q, %v", i, data, err)
		}
	}
	if _, err := g.Ask(t.Context(), blob("k", 4)); peers.Reason(err) != peers.ReasonBreakerOpen || !strings.Contains(err.Error(), peers.ReasonUnreachable) {
		t.Errorf("%v", err)
	}
}

func TestABodyThatNobodyReadsSaysNothing(t *testing.T) {
	t.Parallel()
	f := &fakePeer{}
	g := peers.Guard(f, (&clock{}).Now, peers.Limits{Failures: 2, Concurrent: 1})
	for range 5 {
		f.body = errSilent
		rc, _, err := g.Fetch(t.Context(), blob("k", 4))
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // closing twice gives one place back
			if err := rc.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestAsManyRequestsAsAllowedAndNoMore(t *testing.T) {
	t.Parallel()
	f := &fakePeer{holdAsk: make(chan struct{}), heldCount: make(chan struct{}, 100)}
	g := peers.Guard(f, (&clock{}).Now, peers.Limits{})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := g.Ask(t.Context(), blob("k", 4)); err != nil {
				t.Error(err)
			}
		})
	}
	for range 8 {
		<-f.heldCount
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Ask(ctx, blob("k", 4)); peers.Reason(err) != peers.ReasonInterrupted || !errors.Is(err, context.Canceled) {
		t.Errorf("waiting ends with the context: %v", err)
	}
	close(f.holdAsk)
	wg.Wait()
	if f.most.Load() != 8 || f.asked != 50 {
		t.Errorf("%d at once, %d in all", f.most.Load(), f.asked)
	}
}

// Who waits for a place behind requests that hang is not let through one by one.
func TestWaitersGoAwayWhenTheBreakerOpens(t *testing.T) {
	t.Parallel()
	f := &fakePeer{ask: errSilent, holdAsk: make(chan struct{}), heldCount: make(chan struct{}, 100)}
	g := peers.Guard(f, (&clock{}).Now, peers.Limits{Failures: 2, Concurrent: 2})
	reasons := make(chan string, 20)
	for range 20 {
		go func() {
			_, err := g.Ask(t.Context(), blob("k", 4))
			reasons <- peers.Reason(err)
		}()
	}
	<-f.heldCount
	<-f.heldCount
	close(f.holdAsk)
	got := map[string]int{}
	for range 20 {
		got[<-reasons]++
	}
	// Between the first failure and the second a third may have begun.
	if n := got[peers.ReasonUnreachable]; n < 2 || n > 3 || got[peers.ReasonBreakerOpen] != 20-n {
		t.Error(got)
	}
}

func TestOneTryAtATime(t *testing.T) {
	t.Parallel()
	c := &clock{}
	f := &fakePeer{ask: errSilent}
	g := peers.Guard(f, c.Now, peers.Limits{Failures: 1})
	_, _ = g.Ask(t.Context(), blob("k", 4)) // opens it
	c.pass(time.Minute)
	f.holdAsk, f.heldCount, f.ask = make(chan struct{}), make(chan struct{}, 10), nil
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	try := func(ctx context.Context) {
		_, err := g.Ask(ctx, blob("k", 4))
		done <- err
	}
	go try(ctx)
	<-f.heldCount
	if _, err := g.Ask(t.Context(), blob("k", 4)); peers.Reason(err) != peers.ReasonBreakerOpen {
		t.Errorf("a second try beside the first: %v", err)
	}
	cancel() // a try that was given up leaves its place to another
	<-done
	go try(t.Context())
	<-f.heldCount
	f.holdAsk <- struct{}{}
	if err := <-done; err != nil {
		t.Error(err)
	}
	for range 2 { // it answers again: no more tries, but requests beside each other
		go try(t.Context())
	}
	<-f.heldCount
	<-f.heldCount
	close(f.holdAsk)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// A try of either kind that fails is a reason to wait on.
func TestAFailedTryOfTheOtherKindWaitsOn(t *testing.T) {
	t.Parallel()
	c := &clock{}
	f := &fakePeer{fetch: errSilent, ask: errSilent}
	g := peers.Guard(f, c.Now, peers.Limits{Failures: 3})
	for range 3 {
		_, _, _ = g.Fetch(t.Context(), blob("k", 4)) // opens it
	}
	c.pass(time.Minute)
	for range 5 {
		_, _ = g.Ask(t.Context(), blob("k", 4)) // counted below
	}
	if f.asked != 1 || f.fetched != 3 {
		t.Errorf("asked %d times, fetched %d times", f.asked, f.fetched)
	}
}

// The peer that is down: few requests, and every object's answer stays open.
func TestManyObjectsAtAPeerThatIsBusy(t *testing.T) {
	t.Parallel()
	srv := servertest.Web(t)
	srv.All(servertest.BusyForLong)
	g := peers.Guard(newHTTP(t, srv.Template(), patient, nil), time.Now, peers.Limits{Concurrent: 1})
	reasons := map[string]int{}
	for i := range 344 {
		_, err := g.Ask(t.Context(), blob(fmt.Sprint(i), 4))
		if errors.Is(err, objstore.ErrNotExist) {
			t.Fatal(err)
		}
		reasons[peers.Reason(err)]++
	}
	if len(srv.Requests()) != 5 || reasons[peers.ReasonThrottled] != 5 || reasons[peers.ReasonBreakerOpen] != 339 {
		t.Errorf("%d requests, %v", len(srv.Requests()), reasons)
	}
}
