package wrap_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/faultstore"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/internal/objstore/wrap"
)

var at = objstore.Location{Scheme: "mem", Bucket: "b", Key: "k"}

// faulty is a store with one object "k" of ten bytes behind rules.
func faulty(rules ...faultstore.Rule) (*faultstore.Store, *memstore.Store) {
	m := memstore.New(memstore.Options{Versions: true})
	m.Put(at, []byte("0123456789")) // version v1
	return faultstore.New(m, rules...), m
}

func rule(op string, from, count int, e faultstore.Effect) faultstore.Rule {
	return faultstore.Rule{Op: op, From: from, Count: count, Effect: e}
}

func TestRetryAsksAgain(t *testing.T) {
	t.Parallel()
	reset := errors.New("connection reset")
	for _, tt := range []struct {
		name   string
		effect faultstore.Effect
		bad    int // calls that fail
		calls  int // calls that are made
		want   error
	}{
		{"after a failure of the store", faultstore.Status(500, "InternalError"), 2, 3, nil},
		{"after no answer", faultstore.Answer(objstore.Error{Err: reset}), 2, 3, nil},
		{"three times at most", faultstore.Answer(objstore.Error{Err: reset}), 3, 3, reset},
		{"more often when the store asks to slow down", faultstore.Status(503, "SlowDown"), 7, 8, nil},
		{"not for ever even then", faultstore.Status(503, "SlowDown"), 8, 8, objstore.ErrThrottled},
		{"not after a no", faultstore.NotExist(), 1, 1, objstore.ErrNotExist},
		{"not after a refusal", faultstore.Status(403, "AccessDenied"), 1, 1, objstore.ErrDenied},
		{"not after a redirect", faultstore.Answer(objstore.Error{Status: 301, Err: reset}), 1, 1, reset},
		{"not after an error it does not know", faultstore.Fail(reset), 1, 1, reset},
		{"after an attempt that hangs", faultstore.Hang(), 2, 3, nil},
		{"three times at most when all hang", faultstore.Hang(), 3, 3, context.DeadlineExceeded},
	} {
		for _, op := range []string{"stat", "restat", "probe", "get", "getversion", "list", "versions", "versioning"} {
			t.Run(op+" "+tt.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f, _ := faulty(rule(op, 1, tt.bad, tt.effect))
					m := new(wrap.Meter)
					r := wrap.NewRetry(f, wrap.RetryOptions{Meter: m})
					err := ask(t.Context(), r, op)
					if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
						t.Errorf("got %v, want %v", err, tt.want)
					}
					if got := f.Calls(op); got != tt.calls {
						t.Errorf("%d calls, want %d", got, tt.calls)
					}
					if got := m.Snapshot().Retried; got != int64(tt.calls-1) {
						t.Errorf("%d repetitions counted, want %d", got, tt.calls-1)
					}
				})
			})
		}
	}
}

// ask makes one call of any reading operation.
func ask(ctx context.Context, r objstore.Reader, op string) (err error) {
	switch op {
	case "stat":
		_, err = r.Stat(ctx, at)
	case "restat":
		_, err = r.Restat(ctx, at)
	case "probe":
		_, err = r.Probe(ctx, at)
	case "get":
		var rc io.ReadCloser
		if rc, _, err = r.Get(ctx, at, objstore.Range{}); err == nil {
			_, err = io.ReadAll(rc)
			err = errors.Join(err, rc.Close())
		}
	case "getversion":
		var rc io.ReadCloser
		if rc, _, err = r.GetVersion(ctx, at, "v1", objstore.Range{}); err == nil {
			_, err = io.ReadAll(rc)
			err = errors.Join(err, rc.Close())
		}
	case "versioning":
		_, err = r.Versioning(ctx, at)
	case "list":
		for _, e := range r.List(ctx, at.Container(), "") {
			err = e
		}
	case "versions":
		for _, e := range r.Versions(ctx, at) {
			err = e
		}
	}
	return err
}

func TestWritesAreSentOnce(t *testing.T) {
	t.Parallel()
	reset := errors.New("connection reset")
	for _, e := range []faultstore.Effect{faultstore.Status(503, "SlowDown"), faultstore.Answer(objstore.Error{Err: reset}), faultstore.Status(500, "")} {
		f, m := faulty(rule("create,replace,overmarker", 1, 0, e))
		w := wrap.NewRetryWriter(f, wrap.RetryOptions{})
		if _, err := w.Create(t.Context(), at.Parent().Join("new"), strings.NewReader("x"), 1); err == nil {
			t.Error("create: no error")
		}
		if _, err := w.Replace(t.Context(), at, "tag", strings.NewReader("x"), 1); err == nil {
			t.Error("replace: no error")
		}
		if _, err := w.CreateOverMarker(t.Context(), at, "v2", strings.NewReader("x"), 1); err == nil {
			t.Error("create over a marker: no error")
		}
		if diff := cmp.Diff([]string{"create new", "replace k", "overmarker k v2"}, f.Log()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if n := len(m.Locations()); n != 1 {
			t.Errorf("%d objects", n)
		}
	}
}

func TestAWriteHasNoTimeLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, _ := faulty(rule("create", 1, 0, faultstore.Delay(time.Hour)))
		w := wrap.NewRetryWriter(f, wrap.RetryOptions{RequestTimeout: time.Second})
		if _, err := w.Create(t.Context(), at.Parent().Join("new"), strings.NewReader("x"), 1); err != nil {
			t.Errorf("create: %v", err)
		}
	})
}

func TestAHangingKeyEndsInTime(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"stat", "restat", "probe", "get", "getversion", "list", "versions", "versioning"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f, _ := faulty(rule(op, 1, 0, faultstore.Hang()))
				r := wrap.NewRetry(f, wrap.RetryOptions{RequestTimeout: 2 * time.Second})
				start := time.Now()
				err := ask(t.Context(), r, op)
				var e *objstore.Error
				if !errors.As(err, &e) || !errors.Is(err, context.DeadlineExceeded) || e.Op != op || !strings.Contains(e.Error(), "no answer within 2s") {
					t.Errorf("got %v", err)
				}
				if d := time.Since(start); d < 6*time.Second || d > 7*time.Second {
					t.Errorf("three attempts of 2s took %s", d)
				}
				if t.Context().Err() != nil {
					t.Error("the caller's context ended")
				}
			})
		})
	}
}

func TestACancelledCallerIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"stat", "restat", "probe", "get", "getversion", "list", "versions", "versioning"} {
		for name, e := range map[string]faultstore.Effect{"while hanging": faultstore.Hang(), "while waiting": faultstore.Answer(objstore.Error{Status: 503, RetryAfter: time.Minute, Err: objstore.ErrThrottled})} {
			t.Run(op+" "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f, _ := faulty(rule(op, 1, 0, e))
					r := wrap.NewRetry(f, wrap.RetryOptions{})
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					start := time.Now()
					if err := ask(ctx, r, op); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("got %v", err)
					}
					if d := time.Since(start); d != time.Second {
						t.Errorf("took %s", d)
					}
				})
			})
		}
	}
}

func TestRetryWaitsAsLongAsTheStoreAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, _ := faulty(rule("stat", 1, 1, faultstore.Answer(objstore.Error{Status: 503, RetryAfter: 7 * time.Second, Err: objstore.ErrThrottled})))
		start := time.Now()
		if _, err := wrap.NewRetry(f, wrap.RetryOptions{}).Stat(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d < 7*time.Second || d > 8*time.Second {
			t.Errorf("waited %s", d)
		}
	})
}

func TestGetIsRepeatedUntilItsFirstByte(t *testing.T) {
	t.Parallel()
	f, _ := faulty(rule("get", 1, 2, faultstore.ShortBody(0)))
	r := wrap.NewRetry(f, wrap.RetryOptions{})
	if err := ask(t.Context(), r, "get"); err != nil || f.Calls("get") != 3 {
		t.Errorf("%d calls, %v", f.Calls("get"), err)
	}
	f, _ = faulty(rule("get", 1, 1, faultstore.ShortBody(4)))
	rc, _, err := wrap.NewRetry(f, wrap.RetryOptions{}).Get(t.Context(), at, objstore.Range{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(rc)
	if string(data) != "0123" || !errors.Is(err, io.ErrUnexpectedEOF) || f.Calls("get") != 1 {
		t.Errorf("a body that breaks off: %q, %v, %d calls", data, err, f.Calls("get"))
	}
	if _, err := rc.Read(make([]byte, 1)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read after the break: %v", err)
	}
	if err := rc.Close(); err != nil {
		t.Error(err)
	}
}

// stalling is a store whose bodies and listings stop giving after a while.
type stalling struct{ objstore.Writer }

type stalledBody struct {
	ctx  context.Context
	sent bool
}

func (b *stalledBody) Read(p []byte) (int, error) {
	if !b.sent {
		b.sent = true
		return copy(p, "first"), nil
	}
	<-b.ctx.Done()
	return 0, &objstore.Error{Op: "get", Location: at, Err: b.ctx.Err()}
}

func (b *stalledBody) Close() error { return nil }

func (s stalling) Get(ctx context.Context, _ objstore.Location, _ objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	return &stalledBody{ctx: ctx}, objstore.Attrs{Size: 10}, nil
}

func TestABodyThatStallsEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := wrap.NewRetry(stalling{}, wrap.RetryOptions{RequestTimeout: 3 * time.Second})
		rc, _, err := r.Get(t.Context(), at, objstore.Range{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // a slow reader is no stall
		start := time.Now()
		data, err := io.ReadAll(rc)
		if string(data) != "first" || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 3*time.Second {
			t.Errorf("%q, %v after %s", data, err, time.Since(start))
		}
		if err := rc.Close(); err != nil {
			t.Error(err)
		}
	})
}

// pages is a store whose second page fails twice.
type pages struct {
	*memstore.Store
	asked []string
	fail  int
}

func (p *pages) ListPage(ctx context.Context, prefix objstore.Location, delimiter, token string) ([]objstore.Attrs, string, error) {
	p.asked = append(p.asked, token)
	if token != "" && p.fail > 0 {
		p.fail--
		return nil, "", &objstore.Error{Op: "list", Location: prefix, Status: 500, Err: errors.New("x")}
	}
	return p.Store.ListPage(ctx, prefix, delimiter, token)
}

func TestListIsRepeatedPageByPage(t *testing.T) {
	t.Parallel()
	p := &pages{Store: memstore.New(memstore.Options{PageSize: 2}), fail: 2}
	var want []string
	for _, k := range []string{"a", "b", "c", "d", "e"} {
		p.Put(objstore.Location{Scheme: "mem", Bucket: "b", Key: k}, nil)
		want = append(want, k)
	}
	m := new(wrap.Meter)
	r := wrap.NewRetry(wrap.NewCount(p, m), wrap.RetryOptions{Meter: m})
	var got []string
	for a, err := range r.List(t.Context(), at.Container(), "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, a.Location.Key)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("listing (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"", "b", "b", "b", "d"}, p.asked); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wrap.Counters{List: 5, Retried: 2}, m.Snapshot()); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}

func TestAListingThatBreaksOffSaysSo(t *testing.T) {
	t.Parallel()
	f, m := faulty(rule("list", 1, 0, faultstore.ShortBody(2)))
	for _, k := range []string{"l", "m", "n"} {
		m.Put(objstore.Location{Scheme: "mem", Bucket: "b", Key: k}, nil)
	}
	n, failed := 0, false
	for _, err := range wrap.NewRetry(f, wrap.RetryOptions{}).List(t.Context(), at.Container(), "") {
		if err != nil {
			failed = errors.Is(err, io.ErrUnexpectedEOF)
			continue
		}
		n++
	}
	if n != 2 || !failed || f.Calls("list") != 1 {
		t.Errorf("%d entries, broken off: %v, %d calls", n, failed, f.Calls("list"))
	}
}
