package faultstore_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/faultstore"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/internal/objstore/objstoretest"
)

func loc(key string) objstore.Location {
	return objstore.Location{Scheme: "mem", Bucket: "b", Key: key}
}

func TestConformanceWithoutRules(t *testing.T) {
	t.Parallel()
	objstoretest.Run(t, func(testing.TB) (objstore.Writer, objstoretest.Helper) {
		m := memstore.New(memstore.Options{Versions: true})
		m.RemoveBucket(objstore.Location{Scheme: "mem", Bucket: "absent"})
		s := faultstore.New(m)
		return s, objstoretest.Helper{
			Root: loc(""), Remove: func(_ testing.TB, l objstore.Location) { m.Remove(l) },
			Absent: s, AbsentAt: objstore.Location{Scheme: "mem", Bucket: "absent"}, Versions: true,
		}
	})
}

func newStore(rules ...faultstore.Rule) (*faultstore.Store, *memstore.Store) {
	m := memstore.New(memstore.Options{})
	for _, k := range []string{"x.lance/data/a.lance", "x.lance/data/b.lance", "x.lance/_versions/1.manifest"} {
		m.Put(loc(k), []byte("0123456789"))
	}
	return faultstore.New(m, rules...), m
}

func TestRulesSelect(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	const a, b, v = "x.lance/data/a.lance", "x.lance/data/b.lance", "x.lance/_versions/1.manifest"
	for _, tt := range []struct {
		name string
		rule faultstore.Rule
		want []string // keys whose Stat fails, asked a b v a b v
	}{
		{"everything by default", faultstore.Rule{}, []string{a, b, v, a, b, v}},
		{"one operation of a list", faultstore.Rule{Op: "get, stat"}, []string{a, b, v, a, b, v}},
		{"not another operation", faultstore.Rule{Op: "get"}, nil},
		{"a text in the key", faultstore.Rule{Key: "/data/"}, []string{a, b, a, b}},
		{"a pattern for the tail of a key", faultstore.Rule{Key: "data/*.lance"}, []string{a, b, a, b}},
		{"a pattern for the name", faultstore.Rule{Key: "[ab].lance"}, []string{a, b, a, b}},
		{"a pattern does not cross slashes", faultstore.Rule{Key: "x*manifest"}, nil},
		{"the third call alone", faultstore.Rule{From: 3, Count: 1}, []string{v}},
		{"calls are counted among those selected", faultstore.Rule{Key: "b.lance", From: 2}, []string{b}},
		{"the first two", faultstore.Rule{Count: 2}, []string{a, b}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.rule.Effect = faultstore.Fail(boom)
			s, _ := newStore(tt.rule)
			var got []string
			for _, k := range []string{a, b, v, a, b, v} {
				if _, err := s.Stat(t.Context(), loc(k)); errors.Is(err, boom) {
					got = append(got, k)
				} else if err != nil {
					t.Error(err)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("failed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEffects(t *testing.T) {
	t.Parallel()
	const key = "x.lance/data/a.lance"
	for _, tt := range []struct {
		name   string
		effect faultstore.Effect
		want   error
	}{
		{"a lie", faultstore.NotExist(), objstore.ErrNotExist},
		{"denied", faultstore.Status(403, "AccessDenied"), objstore.ErrDenied},
		{"throttled", faultstore.Status(503, "SlowDown"), objstore.ErrThrottled},
		{"no bucket", faultstore.Status(404, "NoSuchBucket"), objstore.ErrNoSuchBucket},
		{"archived", faultstore.Status(403, "InvalidObjectState"), objstore.ErrArchived},
	} {
		s, _ := newStore(faultstore.Rule{Effect: tt.effect})
		_, err := s.Stat(t.Context(), loc(key))
		var e *objstore.Error
		if !errors.Is(err, tt.want) || !errors.As(err, &e) || e.Op != "stat" || e.Location != loc(key) || e.Status == 0 {
			t.Errorf("%s: %v", tt.name, err)
		}
		for _, err := range s.List(t.Context(), loc(""), "") {
			if !errors.Is(err, tt.want) {
				t.Errorf("%s: list: %v", tt.name, err)
			}
		}
	}
}

func TestDelayAndHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore(
			faultstore.Rule{Key: "a.lance", Effect: faultstore.Delay(time.Minute)},
			faultstore.Rule{Key: "b.lance", Effect: faultstore.Hang()},
		)
		start := time.Now()
		if _, err := s.Stat(t.Context(), loc("x.lance/data/a.lance")); err != nil || time.Since(start) != time.Minute {
			t.Errorf("delayed: %v after %s", err, time.Since(start))
		}
		for _, k := range []string{"x.lance/data/a.lance", "x.lance/data/b.lance"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			start = time.Now()
			if _, err := s.Stat(ctx, loc(k)); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
				t.Errorf("%s: %v after %s", k, err, time.Since(start))
			}
			cancel()
		}
	})
}

func TestALostReplyHasItsEffect(t *testing.T) {
	t.Parallel()
	reset := errors.New("connection reset")
	s, m := newStore(faultstore.Rule{Op: "create", Effect: faultstore.LostReply(reset)})
	if _, err := s.Create(t.Context(), loc("new"), strings.NewReader("x"), 1); !errors.Is(err, reset) {
		t.Errorf("create: %v", err)
	}
	if data, ok := m.Data(loc("new")); !ok || string(data) != "x" {
		t.Errorf("the object: %q, %v", data, ok)
	}
	s, m = newStore(faultstore.Rule{Op: "create", Effect: faultstore.Fail(reset)})
	if _, err := s.Create(t.Context(), loc("new"), strings.NewReader("x"), 1); !errors.Is(err, reset) {
		t.Errorf("create: %v", err)
	}
	if _, ok := m.Data(loc("new")); ok {
		t.Error("a failed create stored something")
	}
}

func TestShortBody(t *testing.T) {
	t.Parallel()
	s, _ := newStore(faultstore.Rule{Effect: faultstore.ShortBody(2)})
	rc, a, err := s.Get(t.Context(), loc("x.lance/data/a.lance"), objstore.Range{})
	if err != nil || a.Size != 10 {
		t.Fatalf("%+v, %v", a, err)
	}
	if data, err := io.ReadAll(rc); string(data) != "01" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", data, err)
	}
	if err := rc.Close(); err != nil {
		t.Error(err)
	}
	n := 0
	var last error
	for _, err := range s.List(t.Context(), loc(""), "") {
		if last = err; err == nil {
			n++
		}
	}
	if n != 2 || !errors.Is(last, io.ErrUnexpectedEOF) {
		t.Errorf("a listing cut after two: %d, %v", n, last)
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	s, _ := newStore()
	const k = "x.lance/data/a.lance"
	_, _ = s.Stat(t.Context(), loc(k))
	_, _ = s.Restat(t.Context(), loc(k))
	_, _ = s.Probe(t.Context(), loc(k))
	for _, r := range []objstore.Range{{}, {Offset: 2, Length: 3}, {Offset: 4}, {Offset: -8}} {
		rc, _, err := s.Get(t.Context(), loc(k), r)
		if err != nil {
			t.Fatal(err)
		}
		if err := rc.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"", "/"} {
		for range s.List(t.Context(), loc("x.lance/"), d) {
		}
	}
	for range s.Versions(t.Context(), loc(k)) {
	}
	_, _ = s.Create(t.Context(), loc("new"), strings.NewReader(""), 0)
	_, _ = s.Replace(t.Context(), loc("new"), "tag", strings.NewReader(""), 0)
	if _, _, err := s.GetVersion(t.Context(), loc(k), "v3", objstore.Range{Offset: -8}); !errors.Is(err, objstore.ErrUnsupported) {
		t.Errorf("a version of a store without versions: %v", err)
	}
	if v, err := s.Versioning(t.Context(), loc(k)); v != objstore.VersioningNever || err != nil {
		t.Errorf("versioning %q, %v", v, err)
	}
	if _, err := s.CreateOverMarker(t.Context(), loc("new"), "v4", strings.NewReader(""), 0); !errors.Is(err, objstore.ErrUnsupported) {
		t.Errorf("a marker in a store without versions: %v", err)
	}
	want := []string{
		"stat " + k, "restat " + k, "probe " + k, "get " + k, "get " + k + " 2+3", "get " + k + " 4+", "get " + k + " -8",
		"list x.lance/", "list x.lance/ /", "versions " + k, "create new", "replace new",
		"getversion " + k + " v3 -8", "versioning " + k, "overmarker new v4",
	}
	if diff := cmp.Diff(want, s.Log()); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if s.Calls("get") != 4 || s.Calls("list") != 2 {
		t.Errorf("%d gets, %d lists", s.Calls("get"), s.Calls("list"))
	}
	s.ClearLog()
	if len(s.Log()) != 0 || s.Calls("get") != 0 {
		t.Error("the log was not cleared")
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	s, _ := newStore(faultstore.Rule{Op: "stat", Count: 40, Effect: faultstore.NotExist()})
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		gone int
	)
	for range 100 {
		wg.Go(func() {
			_, err := s.Stat(t.Context(), loc("x.lance/data/a.lance"))
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, objstore.ErrNotExist) {
				gone++
			}
		})
	}
	wg.Wait()
	if gone != 40 || s.Calls("stat") != 100 {
		t.Errorf("%d of %d lied about, want 40 of 100", gone, s.Calls("stat"))
	}
}

func TestVersionsMisbehave(t *testing.T) {
	t.Parallel()
	m := memstore.New(memstore.Options{Versions: true})
	m.Put(loc("k"), []byte("0123456789"))
	boom := errors.New("boom")
	s := faultstore.New(m, faultstore.Rule{Op: "getversion", Count: 1, Effect: faultstore.ShortBody(4)},
		faultstore.Rule{Op: "getversion", Effect: faultstore.LostReply(boom)}, faultstore.Rule{Op: "versioning", Effect: faultstore.Status(403, "AccessDenied")},
		faultstore.Rule{Op: "overmarker", Effect: faultstore.LostReply(boom)})
	rc, _, err := s.GetVersion(t.Context(), loc("k"), "v1", objstore.Range{})
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(rc)
	var e *objstore.Error
	if string(data) != "0123" || !errors.Is(err, io.ErrUnexpectedEOF) || !errors.As(err, &e) || e.Op != "getversion" || rc.Close() != nil {
		t.Errorf("read %q, %v", data, err)
	}
	if _, _, err := s.GetVersion(t.Context(), loc("k"), "v1", objstore.Range{}); !errors.Is(err, boom) {
		t.Error(err)
	}
	if _, err := s.Versioning(t.Context(), loc("k")); !errors.Is(err, objstore.ErrDenied) {
		t.Error(err)
	}
	m.Remove(loc("k"))
	if _, err := s.CreateOverMarker(t.Context(), loc("k"), "v2", strings.NewReader("back"), 4); !errors.Is(err, boom) {
		t.Error(err)
	}
	if data, ok := m.Data(loc("k")); !ok || string(data) != "back" {
		t.Errorf("the store holds %q, %v", data, ok)
	}
}
