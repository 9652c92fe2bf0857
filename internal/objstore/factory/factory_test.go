package factory_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/faultstore"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/internal/objstore/wrap"
	"github.com/rocketkeep/reconcile/internal/servertest"
)

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestLocateCompletesEndpoints(t *testing.T) {
	srv := servertest.S3(t)
	srv.Setenv(t)
	host := strings.TrimPrefix(srv.Endpoint, "http://")
	set := factory.New(factory.Options{PerPrefix: []factory.Override{
		{Root: "s3://peer/dr", S3: factory.S3Options{Endpoint: "http://peer:9000"}},
		{Root: "s3a://peer/dr/deep/", S3: factory.S3Options{Endpoint: "http://deep:9000"}},
		{Root: "s3://aws", S3: factory.S3Options{Endpoint: "https://s3.eu-west-1.amazonaws.com"}},
	}})
	for uri, want := range map[string]string{
		"s3://bucket/x.lance":    "s3://bucket@" + host + "/x.lance",
		"s3a://bucket/x.lance/":  "s3://bucket@" + host + "/x.lance",
		"s3://peer/dr/x":         "s3://peer@peer:9000/dr/x",
		"s3://peer/dr":           "s3://peer@peer:9000/dr",
		"s3://peer/drive":        "s3://peer@" + host + "/drive",
		"s3://peer/dr/deep/x":    "s3://peer@deep:9000/dr/deep/x",
		"s3://peer/dr/deep":      "s3://peer@deep:9000/dr/deep",
		"s3://aws/any/where/b c": "s3://aws/any/where/b c",
	} {
		if got := must[objstore.Location](t)(set.Locate(uri)); got.Canonical() != want {
			t.Errorf("Locate(%s) = %s, want %s", uri, got.Canonical(), want)
		}
	}
	if _, err := set.Locate("az://c/p"); !errors.Is(err, objstore.ErrUnsupported) {
		t.Errorf("az: %v", err)
	}
	if n := len(srv.Requests()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// One bucket name on two endpoints is two places, and each is reached as it was located.
func TestEqualNamesOnTwoEndpoints(t *testing.T) {
	here, there := servertest.S3(t), servertest.S3(t)
	here.Setenv(t)
	here.Put(t, "x", []byte("here"))
	there.Put(t, "x", []byte("over there"))
	other := factory.S3Options{Endpoint: there.Endpoint}
	set := factory.New(factory.Options{PerPrefix: []factory.Override{{Root: "s3://bucket/", S3: other, Peer: true}, {Root: "s3://bucket/"}}})
	defer set.Close()
	locate := must[objstore.Location](t)
	plain, by, home := locate(set.Locate("s3://bucket/x")), locate(set.LocateBy("s3://bucket/x", other)), locate(set.LocateBy("s3://bucket/x", factory.S3Options{}))
	near := locate(set.LocateNear("s3://bucket/x", by))
	for _, c := range []struct {
		name string
		loc  objstore.Location
		size int64
	}{
		{"a URI alone is no peer's", plain, 4},
		{"a place is reached as is said", by, 10},
		{"and in general when nothing is said", home, 4},
		{"what a peer names lies at the peer", near, 10},
		{"what a place names lies there", locate(set.LocateNear("s3://bucket/x", plain)), 4},
	} {
		r := must[objstore.Reader](t)(set.Reader(t.Context(), c.loc))
		if at, err := r.Stat(t.Context(), c.loc); err != nil || at.Size != c.size {
			t.Errorf("%s: %+v, %v", c.name, at, err)
		}
	}
}

func TestLocateFollowsLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "real", "x.lance"), 0o755), os.Symlink("real", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	set := factory.New(factory.Options{})
	a := must[objstore.Location](t)(set.Locate(filepath.Join(dir, "real", "x.lance")))
	b := must[objstore.Location](t)(set.Locate("file://" + dir + "/link/x.lance/"))
	if a != b {
		t.Errorf("%s and %s", a, b)
	}
}

func TestReadersAreReadersAndAreShared(t *testing.T) {
	srv := servertest.S3(t)
	srv.Setenv(t)
	srv.Put(t, "base/a", []byte("x"))
	srv.ClearLog()
	set := factory.New(factory.Options{})
	defer set.Close()
	root := must[objstore.Location](t)(set.Locate("s3://bucket/base"))
	r := must[objstore.Reader](t)(set.Reader(t.Context(), root))
	if _, ok := r.(objstore.Creator); ok {
		t.Error("a Reader can create")
	}
	if _, ok := r.(objstore.Replacer); ok {
		t.Error("a Reader can replace")
	}
	// A base path in another bucket of the same endpoint is another store.
	other := must[objstore.Location](t)(set.Locate("s3://other/x"))
	ro := must[objstore.Reader](t)(set.Reader(t.Context(), other))
	if _, err := ro.Probe(t.Context(), other); !errors.Is(err, objstore.ErrNoSuchBucket) {
		t.Errorf("probe in another bucket: %v", err)
	}
	w := must[objstore.Writer](t)(set.Writer(t.Context(), root))
	if _, err := w.Create(t.Context(), root.Join("b"), strings.NewReader("y"), 1); err != nil {
		t.Error(err)
	}
	if a, err := r.Stat(t.Context(), root.Join("b")); err != nil || a.Size != 1 {
		t.Errorf("%+v, %v", a, err)
	}
	for _, err := range r.List(t.Context(), root.Dir(), "") {
		if err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff(wrap.Counters{Head: 1, Get: 1, List: 1, Put: 1}, set.Counters()); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}

func TestALocationOfAnotherEndpointIsRefused(t *testing.T) {
	srv := servertest.S3(t)
	srv.Setenv(t)
	set := factory.New(factory.Options{})
	loc, err := objstore.Parse("s3://bucket/x") // without Locate: would be AWS
	if err != nil {
		t.Fatal(err)
	}
	if _, err := set.Reader(t.Context(), loc); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	if _, err := set.Reader(t.Context(), objstore.Location{Scheme: "mem", Bucket: "b"}); !errors.Is(err, objstore.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}

func TestMissingCredentials(t *testing.T) {
	srv := servertest.S3(t)
	srv.Setenv(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	set := factory.New(factory.Options{})
	loc := must[objstore.Location](t)(set.Locate("s3://bucket/x"))
	_, err := set.Reader(t.Context(), loc)
	if !errors.Is(err, objstore.ErrNoCredentials) || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
		t.Errorf("got %v", err)
	}
	// They may come later.
	srv.Setenv(t)
	set = factory.New(factory.Options{})
	if _, err := set.Reader(t.Context(), loc); err != nil {
		t.Error(err)
	}
}

func TestBadOverridesAreToldByTheFirstUse(t *testing.T) {
	t.Parallel()
	set := factory.New(factory.Options{PerPrefix: []factory.Override{{Root: "nonsense://x"}}})
	if _, err := set.Locate("/tmp"); !errors.Is(err, objstore.ErrUnsupported) {
		t.Errorf("got %v", err)
	}
}

func TestFileRootsAreStoresOfTheirOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "there"), 0o755), os.WriteFile(filepath.Join(dir, "there", "a"), []byte("x"), 0o644)); err != nil {
		t.Fatal(err)
	}
	set := factory.New(factory.Options{})
	there := must[objstore.Location](t)(set.Locate(filepath.Join(dir, "there")))
	away := must[objstore.Location](t)(set.Locate(filepath.Join(dir, "away")))
	for _, tt := range []struct {
		root objstore.Location
		want error
	}{{there, objstore.ErrNotExist}, {there.Dir(), objstore.ErrNotExist}, {away, objstore.ErrNoSuchBucket}} {
		r := must[objstore.Reader](t)(set.Reader(t.Context(), tt.root))
		if _, err := r.Probe(t.Context(), tt.root.Join("x")); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", tt.root, err)
		}
	}
}

// TestTheStack: every decorator is there and in its place.
func TestTheStack(t *testing.T) {
	t.Parallel()
	m := memstore.New(memstore.Options{})
	loc := objstore.Location{Scheme: "mem", Bucket: "b", Key: "k"}
	m.Put(loc, []byte("x"))
	f := faultstore.New(m,
		faultstore.Rule{Op: "stat", Count: 2, Effect: faultstore.Status(503, "SlowDown")},
		faultstore.Rule{Op: "create", Effect: faultstore.Status(500, "InternalError")},
	)
	set := factory.New(factory.Options{
		MaxInFlight: 4, Attempts: 2,
		Open: func(context.Context, objstore.Location) (objstore.Writer, error) { return f, nil },
	})
	r := must[objstore.Reader](t)(set.Reader(t.Context(), loc))
	if _, err := r.Stat(t.Context(), loc); err != nil {
		t.Errorf("stat: %v", err)
	}
	w := must[objstore.Writer](t)(set.Writer(t.Context(), loc))
	if _, err := w.Create(t.Context(), loc.Parent().Join("new"), strings.NewReader(""), 0); err == nil {
		t.Error("create: no error")
	}
	if diff := cmp.Diff(wrap.Counters{Head: 3, Put: 1, Throttled: 2, Retried: 2}, set.Counters()); diff != "" {
		t.Errorf("counters (-want +got):\n%s", diff)
	}
}

func TestEveryRequestIsCounted(t *testing.T) {
	srv := servertest.S3(t)
	srv.Setenv(t)
	srv.Put(t, "empty", nil)
	srv.Put(t, "full", []byte("x"))
	set := factory.New(factory.Options{})
	defer set.Close()
	root := must[objstore.Location](t)(set.Locate("s3://bucket/"))
	r := must[objstore.Reader](t)(set.Reader(t.Context(), root))
	srv.ClearLog()
	for _, key := range []string{"empty", "full", "absent"} {
		_, _ = r.Probe(t.Context(), root.Join(key))
		_, _ = r.Stat(t.Context(), root.Join(key))
		_, _ = r.Restat(t.Context(), root.Join(key))
	}
	sent := map[string]int64{}
	for _, req := range srv.Requests() {
		sent[req.Op]++
	}
	if c := set.Counters(); c.Head != sent["HEAD"] || c.Get != sent["GET"] {
		t.Errorf("counted %+v, sent %v", c, sent)
	}
}
