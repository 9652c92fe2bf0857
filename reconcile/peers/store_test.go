package peers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/faultstore"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/peers"
)

var replica = objstore.Location{Scheme: "s3", Bucket: "replica", Key: "eu/blobs"}

func newStore(t *testing.T, root objstore.Location, src peers.Objects, mirrors objstore.Location) *peers.Store {
	t.Helper()
	p, err := peers.NewStore(root, src, peers.Options{Mirrors: mirrors, Timing: patient, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func at(scheme, bucket, key string) objstore.Location {
	return objstore.Location{Scheme: scheme, Bucket: bucket, Key: key}
}

func TestObjectsLieUnderTheSameNameAtThePeer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		mirrors, root objstore.Location
		object, want  string // keys; no want: there is no place
	}{
		{"a table file", at("s3", "b", ""), at("s3", "r", ""), "x.lance/data/f.lance", "x.lance/data/f.lance"},
		{"below prefixes", at("s3", "b", "p"), at("s3", "r", "q/r"), "p/x.lance/data/f.lance", "q/r/x.lance/data/f.lance"},
		{"slashes at the end of prefixes", at("s3", "b", "p/"), at("s3", "r", "q/"), "p/x", "q/x"},
		{"an empty part in a prefix", at("s3", "b", "p//"), at("s3", "r", "q//"), "p//x", "q//x"},
		{"a leading slash", at("s3", "b", "p"), at("s3", "r", "q"), "p//x", "q//x"},
		{"a leading slash in a whole bucket", at("s3", "b", ""), at("s3", "r", ""), "/x", "/x"},
		{"two dots", at("s3", "b", "p"), at("s3", "r", "q"), "p/a/../../x", "q/a/../../x"},
		{"what URLs give meaning to", at("s3", "b", "p"), at("s3", "r", "q"), "p/a b%20+ü?c#d\xff", "q/a b%20+ü?c#d\xff"},
		{"a folder as the peer", at("s3", "b", "p"), at("file", "", "/mnt/r"), "p/a b%/c", "/mnt/r/a b%/c"},
		{"a disk as the peer", at("s3", "b", "p"), at("file", "", "/"), "p/x", "/x"},
		{"a folder as what is mirrored", at("file", "", "/data"), at("s3", "r", "q"), "/data/x/y", "q/x/y"},
		{"a name that no folder has: dots", at("s3", "b", "p"), at("file", "", "/mnt/r"), "p/../x", ""},
		{"a name that no folder has: one dot", at("s3", "b", "p"), at("file", "", "/mnt/r"), "p/./x", ""},
		{"a name that no folder has: a leading slash", at("s3", "b", "p"), at("file", "", "/mnt/r"), "p//x", ""},
		{"a name that no folder has: a slash at the end", at("s3", "b", "p"), at("file", "", "/mnt/r"), "p/x/", ""},
		{"a name that no folder has: NUL", at("s3", "b", "p"), at("file", "", "/mnt/r"), "p/x\x00", ""},
		{"beside the prefix", at("s3", "b", "p"), at("s3", "r", "q"), "p2/x", ""},
		{"the prefix itself", at("s3", "b", "p"), at("s3", "r", "q"), "p/", ""},
		{"above it", at("s3", "b", "p"), at("s3", "r", "q"), "x", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			mem := memstore.New(memstore.Options{})
			want := tt.root
			want.Key = tt.want
			mem.Put(want, []byte("copy"))
			object := tt.mirrors
			object.Key = tt.object
			data, a, err := fetched(t.Context(), newStore(t, tt.root, mem, tt.mirrors), reconcile.Reference{Location: object})
			if tt.want == "" {
				if !errors.Is(err, reconcile.ErrNotBelow) || errors.Is(err, objstore.ErrNotExist) || peers.Reason(err) != peers.ReasonOutside {
					t.Errorf("%q, %v", data, err)
				}
				return
			}
			if string(data) != "copy" || err != nil || a.Location != want {
				t.Errorf("%q, %+v, %v", data, a.Location, err)
			}
		})
	}
	other := collection.Join("x")
	other.Endpoint = "elsewhere:9000"
	for _, loc := range []objstore.Location{{}, at("s3", "another", "blobs/x"), at("gs", collection.Bucket, "blobs/x"), other} {
		_, err := newStore(t, replica, memstore.New(memstore.Options{}), collection).Ask(t.Context(), reconcile.Reference{Location: loc})
		if !errors.Is(err, reconcile.ErrNotBelow) {
			t.Errorf("%+v: %v", loc, err)
		}
	}
}

func TestAnAlternatePlaceIsAskedForToo(t *testing.T) {
	t.Parallel()
	mem := memstore.New(memstore.Options{})
	mem.Put(replica.Join("other"), []byte("x"))
	faulty := faultstore.New(mem)
	p := newStore(t, replica, faulty, collection)
	ref := blob("a", 4)
	ref.Alternates = []reconcile.Place{{Location: collection.Join("b")}, {Location: at("s3", "another", "c")}}
	if _, err := p.Ask(t.Context(), ref); !errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("none has it: %v", err)
	}
	if diff := cmp.Diff([]string{"stat eu/blobs/a", "probe eu/blobs/a", "stat eu/blobs/b", "probe eu/blobs/b", "list eu/blobs/ /"}, faulty.Log()); diff != "" {
		t.Error(diff)
	}
	faulty.Add(faultstore.Rule{Key: "blobs/a", Effect: faultstore.Status(http.StatusForbidden, "AccessDenied")})
	if _, err := p.Ask(t.Context(), ref); peers.Reason(err) != peers.ReasonDenied || errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("one says nothing: %v", err)
	}
	mem.Put(replica.Join("b"), []byte("copy"))
	if data, _, err := fetched(t.Context(), p, ref); string(data) != "copy" || err != nil {
		t.Errorf("the second has it: %q, %v", data, err)
	}
}

func TestOnlyTheCodeOfAGetIsANo(t *testing.T) {
	t.Parallel()
	answer := func(status int, code string, err error) faultstore.Effect {
		return faultstore.Answer(objstore.Error{Status: status, Code: code, Err: err})
	}
	for _, tt := range []struct {
		name  string
		rules []faultstore.Rule
		there bool
		want  string
		// empty: nothing else is below the peer's root.
		empty bool
	}{
		{name: "there", there: true},
		{name: "not there", want: peers.ReasonNoSuchObject},
		{name: "nothing is there at all", want: peers.ReasonEmptyRoot, empty: true},
		{name: "not there, and the root cannot be listed", rules: []faultstore.Rule{{Op: "list", Effect: answer(403, "AccessDenied", objstore.ErrDenied)}}, want: peers.ReasonDenied},
		{"404 to HEAD alone", []faultstore.Rule{{Op: "stat", Effect: faultstore.NotExist()}}, true, "", false},
		{"404 to HEAD, and 404 without its code", []faultstore.Rule{{Op: "stat", Effect: faultstore.NotExist()}, {Op: "probe", Effect: answer(404, "", errors.New("unexpected"))}}, true, peers.ReasonStatus, false},
		{"404 to HEAD, and no answer", []faultstore.Rule{{Op: "probe", Effect: faultstore.Fail(io.ErrUnexpectedEOF)}}, false, peers.ReasonUnreachable, false},
		{"404 to HEAD, and 403", []faultstore.Rule{{Op: "probe", Effect: answer(403, "AccessDenied", objstore.ErrDenied)}}, false, peers.ReasonDenied, false},
		{"no bucket", []faultstore.Rule{{Op: "stat", Effect: faultstore.NotExist()}, {Op: "probe", Effect: answer(404, "NoSuchBucket", objstore.ErrNoSuchBucket)}}, true, peers.ReasonNoSuchBucket, false},
		{"403", []faultstore.Rule{{Op: "stat", Effect: answer(403, "", objstore.ErrDenied)}}, true, peers.ReasonDenied, false},
		{"503", []faultstore.Rule{{Op: "stat", Effect: answer(503, "SlowDown", objstore.ErrThrottled)}}, true, peers.ReasonThrottled, false},
		{"500", []faultstore.Rule{{Op: "stat", Effect: answer(500, "", errors.New("x"))}}, true, peers.ReasonServerError, false},
		{"301", []faultstore.Rule{{Op: "stat", Effect: answer(301, "", errors.New("x"))}}, true, peers.ReasonRedirect, false},
		{"400", []faultstore.Rule{{Op: "stat", Effect: answer(400, "", errors.New("x"))}}, true, peers.ReasonStatus, false},
		{"a time-out", []faultstore.Rule{{Op: "stat", Effect: answer(0, "", context.DeadlineExceeded)}}, true, peers.ReasonTimeout, false},
		{"nobody to sign as", []faultstore.Rule{{Op: "stat", Effect: answer(0, "", objstore.ErrNoCredentials)}}, true, peers.ReasonNoCredentials, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			mem := memstore.New(memstore.Options{})
			if !tt.empty {
				mem.Put(replica.Join("other"), []byte("x"))
			}
			if tt.there {
				mem.Put(replica.Join("k"), []byte("copy"))
			}
			a, err := newStore(t, replica, faultstore.New(mem, tt.rules...), collection).Ask(t.Context(), blob("k", 4))
			if got := peers.Reason(err); got != tt.want || errors.Is(err, objstore.ErrNotExist) != (tt.want == peers.ReasonNoSuchObject) {
				t.Errorf("%q (%v), want %q", got, err, tt.want)
			}
			if err == nil && a.Size != 4 {
				t.Errorf("%+v", a)
			}
		})
	}
}

func TestBodiesOfStores(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		effect faultstore.Effect
		want   string
	}{
		{"whole", faultstore.Effect{}, ""},
		{"cut", faultstore.ShortBody(10), peers.ReasonCutShort},
		{"gone since", faultstore.NotExist(), peers.ReasonNoSuchObject},
		{"archived", faultstore.Answer(objstore.Error{Status: 403, Code: "InvalidObjectState", Err: objstore.ErrArchived}), peers.ReasonArchived},
	} {
		mem := memstore.New(memstore.Options{})
		good := content(1 << 16)
		mem.Put(replica.Join("k"), good)
		data, a, err := fetched(t.Context(), newStore(t, replica, faultstore.New(mem, faultstore.Rule{Op: "get", Effect: tt.effect}), collection), blob("k", 1<<16))
		if got := peers.Reason(err); got != tt.want || err == nil && (!bytes.Equal(data, good) || a.Size != 1<<16) {
			t.Errorf("%s: %q (%v), %d bytes", tt.name, got, err, len(data))
		}
	}
}

// bodies answers every Get with one body.
type bodies struct {
	peers.Objects
	size int64
	body func(ctx context.Context) io.Reader
}

func (b bodies) Get(ctx context.Context, _ objstore.Location, _ objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	return io.NopCloser(b.body(ctx)), objstore.Attrs{Size: b.size}, nil
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

func TestABodyThatDoesNotComeEnds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		size int64
		body func(ctx context.Context) io.Reader
		want string
		read int
	}{
		{"one that stalls", 100, func(ctx context.Context) io.Reader {
			return io.MultiReader(strings.NewReader("begin"), readFunc(func([]byte) (int, error) { <-ctx.Done(); return 0, ctx.Err() }))
		}, peers.ReasonStalled, 5},
		{"one that ends early without a word", 100, func(context.Context) io.Reader { return strings.NewReader("begin") }, peers.ReasonCutShort, 5},
		{"one that does not end", 3, func(context.Context) io.Reader { return strings.NewReader("begin") }, peers.ReasonTooLong, 3},
		{"one of unknown size that does not end", objstore.Unknown, func(context.Context) io.Reader { return strings.NewReader("0123456789ab") }, peers.ReasonTooLong, 10},
	} {
		p, err := peers.NewStore(replica, bodies{size: tt.size, body: tt.body}, peers.Options{Mirrors: collection, Timing: peers.Timing{Stall: 100 * time.Millisecond}, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		data, _, err := fetched(t.Context(), p, blob("k", 10))
		if peers.Reason(err) != tt.want || len(data) != tt.read {
			t.Errorf("%s: %d bytes, %v", tt.name, len(data), err)
		}
	}
}

// The time that a slow reader of the body takes is not the peer's.
func TestDrippingCountsTheWaitingAlone(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	var waits time.Duration
	src := bodies{size: 1000, body: func(context.Context) io.Reader {
		n := 0
		return readFunc(func(p []byte) (int, error) {
			if n++; n > 1000 {
				return 0, io.EOF
			}
			now = now.Add(waits)
			return copy(p, "x"), nil
		})
	}}
	p, err := peers.NewStore(replica, src, peers.Options{Mirrors: collection, Timing: peers.Timing{Grace: 10 * time.Second, MinRate: 100}, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name          string
		waits, pauses time.Duration
		want          string
		atLeast       int
	}{
		{"a slow reader", 0, time.Hour, "", 1000},
		{"a byte each 15 ms: ten seconds and what a thousand bytes may take", 15 * time.Millisecond, 0, "", 1000},
		{"a byte each 50 ms", 50 * time.Millisecond, 0, peers.ReasonTooSlow, 200},
	} {
		waits = tt.waits
		rc, _, err := p.Fetch(t.Context(), blob("k", 1000))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for buf := make([]byte, 10); err == nil; now = now.Add(tt.pauses) {
			var m int
			m, err = rc.Read(buf)
			n += m
		}
		if err == io.EOF {
			err = nil
		}
		if peers.Reason(err) != tt.want || n < tt.atLeast || tt.want != "" && n > tt.atLeast+100 {
			t.Errorf("%s: %d bytes, %v", tt.name, n, err)
		}
		if _, again := rc.Read(make([]byte, 1)); tt.want != "" && again != err {
			t.Errorf("%s: read on: %v", tt.name, again)
		}
		_ = rc.Close() // there is nothing behind it
	}
}

func TestStorePeersThatMakeNoSense(t *testing.T) {
	t.Parallel()
	mem := memstore.New(memstore.Options{})
	slash := collection
	slash.Key += "/"
	for name, f := range map[string]func() (*peers.Store, error){
		"its own peer": func() (*peers.Store, error) {
			return peers.NewStore(slash, mem, peers.Options{Mirrors: collection, Now: time.Now})
		},
		"no root": func() (*peers.Store, error) {
			return peers.NewStore(objstore.Location{}, mem, peers.Options{Mirrors: collection, Now: time.Now})
		},
		"no store": func() (*peers.Store, error) {
			return peers.NewStore(replica, nil, peers.Options{Mirrors: collection, Now: time.Now})
		},
		"no clock":         func() (*peers.Store, error) { return peers.NewStore(replica, mem, peers.Options{Mirrors: collection}) },
		"nothing mirrored": func() (*peers.Store, error) { return peers.NewStore(replica, mem, peers.Options{Now: time.Now}) },
	} {
		if _, err := f(); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	custom := replica
	custom.Endpoint, custom.Key = "127.0.0.1:7070", "eu/"
	for want, root := range map[string]objstore.Location{"s3://replica/eu/blobs": replica, "s3://replica@127.0.0.1:7070/eu": custom} {
		if got := newStore(t, root, mem, collection).Name(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// Real requests: a bucket of odd keys through the client that passes use.
func TestAnS3PeerOnTheWire(t *testing.T) {
	t.Parallel()
	srv := servertest.S3(t)
	set := factory.New(factory.Options{S3: factory.S3Options{Endpoint: srv.Endpoint}, Attempts: 2, RequestTimeout: 500 * time.Millisecond})
	t.Cleanup(set.Close)
	open := func(uri string) *peers.Store {
		root, err := set.Locate(uri)
		if err != nil {
			t.Fatal(err)
		}
		r, err := set.Reader(t.Context(), root)
		if err != nil {
			t.Fatal(err)
		}
		return newStore(t, root, r, collection)
	}
	p := open(srv.URI("eu"))
	for i, key := range []string{"a b", "50%", "%2F%20", "a+b", "ü/日本", "lead//twice", "a?b#c&d=e", "..dots..", "dir/x"} {
		good := fmt.Appendf(nil, "bytes of %d", i)
		srv.Put(t, "eu/"+key, good)
		a, err := p.Ask(t.Context(), blob(key, int64(len(good))))
		if err != nil || a.Size != int64(len(good)) {
			t.Errorf("ask %q: %+v, %v", key, a, err)
		}
		if data, _, err := fetched(t.Context(), p, blob(key, int64(len(good)))); err != nil || !bytes.Equal(data, good) {
			t.Errorf("fetch %q: %q, %v", key, data, err)
		}
	}
	srv.ClearLog()
	_, err := p.Ask(t.Context(), blob("gone", 1))
	var log []string
	for _, r := range srv.Requests() {
		log = append(log, r.String())
	}
	if diff := cmp.Diff([]string{"HEAD eu/gone", "GET eu/gone", "LIST eu/"}, log); diff != "" || peers.Reason(err) != peers.ReasonNoSuchObject {
		t.Errorf("%v\n%s", err, diff)
	}
	if _, err := open("s3://nobucket/eu").Ask(t.Context(), blob("gone", 1)); peers.Reason(err) != peers.ReasonNoSuchBucket || errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("no bucket: %v", err)
	}
	srv.Put(t, "eu/large", content(1<<20))
	for _, tt := range []struct {
		name       string
		rule       servertest.Rule
		ask, fetch string
	}{
		{"hangs", servertest.Rule{Hang: true}, peers.ReasonTimeout, peers.ReasonTimeout},
		{"drops", servertest.Rule{Drop: true}, peers.ReasonUnreachable, peers.ReasonUnreachable},
		{"denies", servertest.Rule{Status: 403, Code: "AccessDenied"}, peers.ReasonDenied, peers.ReasonDenied},
		{"lies to HEAD", servertest.Rule{Op: "HEAD", Status: 404}, "", ""},
		{"is no S3", servertest.Rule{Status: 404, Code: "Teapot"}, peers.ReasonStatus, peers.ReasonStatus},
		{"breaks off", servertest.Rule{Op: "GET", Cut: 100_000}, "", peers.ReasonCutShort},
		{"redirects", servertest.Rule{Status: 307, Code: "TemporaryRedirect", Header: map[string]string{"Location": "http://127.0.0.1:1/"}}, peers.ReasonRedirect, peers.ReasonRedirect},
	} {
		srv.ClearRules()
		srv.Add(tt.rule)
		_, err := p.Ask(t.Context(), blob("large", 1<<20))
		_, _, ferr := fetched(t.Context(), p, blob("large", 1<<20))
		if peers.Reason(err) != tt.ask || peers.Reason(ferr) != tt.fetch {
			t.Errorf("one that %s: ask %v, fetch %v", tt.name, err, ferr)
		}
	}
}

func TestAFolderAsPeer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	set := factory.New(factory.Options{})
	if err := os.WriteFile(filepath.Join(dir, "a b%"), []byte("copy"), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(path string) *peers.Store {
		root, err := set.Locate(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := set.Reader(t.Context(), root)
		if err != nil {
			t.Fatal(err)
		}
		return newStore(t, root, r, collection)
	}
	p := open(dir)
	if data, _, err := fetched(t.Context(), p, blob("a b%", 4)); string(data) != "copy" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := p.Ask(t.Context(), blob("gone/x", 4)); peers.Reason(err) != peers.ReasonNoSuchObject {
		t.Errorf("%v", err)
	}
	if _, err := open(filepath.Join(dir, "away")).Ask(t.Context(), blob("x", 4)); peers.Reason(err) != peers.ReasonNoSuchBucket || errors.Is(err, objstore.ErrNotExist) {
		t.Errorf("a root that is away: %v", err)
	}
}
