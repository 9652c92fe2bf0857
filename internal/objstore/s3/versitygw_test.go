package s3_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/objstoretest"
	"github.com/rocketkeep/reconcile/internal/objstore/s3"
	"github.com/rocketkeep/reconcile/internal/servertest"
)

// TestWrongKeysAreDenied: on a server that checks signatures, by both ways to HEAD.
func TestWrongKeysAreDenied(t *testing.T) {
	srv := servertest.Versitygw(t)
	srv.Put(t, "k", []byte("x"))
	for name, kv := range map[string][2]string{"a wrong secret": {srv.AccessKey, "wrong"}, "an unknown key": {"nobody", "wrong"}} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AWS_ACCESS_KEY_ID", kv[0])
			t.Setenv("AWS_SECRET_ACCESS_KEY", kv[1])
			s, root := bucket(t, client(t, srv, s3.Options{}), srv.Bucket)
			for _, key := range []string{"k", "absent"} {
				for _, op := range ops(heads, gets, lists, writes) {
					wantKind(t, op+" "+key, ask(t.Context(), s, root.Join(key), op), objstore.ErrDenied)
				}
			}
		})
	}
}

// TestVersionsOfARealServer runs the suite of a bucket that keeps versions.
func TestVersionsOfARealServer(t *testing.T) {
	t.Parallel()
	srv := servertest.Versitygw(t)
	srv.EnableVersions(t)
	c := client(t, srv, s3.Options{})
	s, root := bucket(t, c, srv.Bucket)
	h := objstoretest.Helper{
		Root: root, Versions: true,
		Remove: func(t testing.TB, loc objstore.Location) { srv.Remove(t, loc.Key) },
		Odd:    func(key string) bool { return key != "k/below" },
	}
	objstoretest.Versions(t, s, h)
	h.Root = root.Join("markers")
	objstoretest.OverMarkers(t, s, h)
	h.Root = root.Join("race")
	objstoretest.OverMarkerRace(t, s, h)
	// A removed key is missing for every look.
	for _, op := range ops(heads, gets) {
		wantKind(t, op, ask(t.Context(), s, root.Join("k"), op), objstore.ErrNotExist)
	}
	if testing.Short() {
		return
	}
	// Many versions come in pages.
	for range 1100 {
		srv.Put(t, "many", []byte("x"))
	}
	n, latest := 0, 0
	ids := map[string]bool{}
	for a, err := range s.Versions(t.Context(), root.Join("many")) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		ids[a.VersionID] = true
		if a.IsLatest {
			latest++
			if n != 1 {
				t.Errorf("the latest is number %d", n)
			}
		}
	}
	if n != 1100 || len(ids) != 1100 || latest != 1 {
		t.Errorf("%d versions, %d ids, %d latest", n, len(ids), latest)
	}
}

// breaking is a body that can be read once, and breaks off the second time.
type breaking struct {
	r    *bytes.Reader
	ends int
}

func (b *breaking) Seek(offset int64, whence int) (int64, error) { return b.r.Seek(offset, whence) }

func (b *breaking) Read(p []byte) (int, error) {
	if b.ends > 0 && b.r.Len() < int(b.r.Size())/2 {
		return 0, errors.New("the disk is gone")
	}
	n, err := b.r.Read(p)
	if err == io.EOF {
		b.ends++
	}
	return n, err
}

func TestABodyThatBreaksOnItsWayStoresNothing(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB) *servertest.Server{"in process": servertest.S3, "versitygw": servertest.Versitygw} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := start(t)
			s, root := bucket(t, client(t, srv, s3.Options{}), srv.Bucket)
			const size = 8 << 20
			_, err := s.Create(t.Context(), root.Join("k"), &breaking{r: bytes.NewReader(make([]byte, size))}, size)
			if e := wantKind(t, "create", err, nil); e.Status != 0 {
				t.Errorf("got %v", err)
			}
			if _, err := s.Stat(t.Context(), root.Join("k")); !errors.Is(err, objstore.ErrNotExist) {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// TestALargeBodyThatIsReadOnce goes through a temporary file.
func TestALargeBodyThatIsReadOnce(t *testing.T) {
	t.Parallel()
	const size = 20 << 20
	data := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	for name, start := range map[string]func(testing.TB) *servertest.Server{"in process": servertest.S3, "versitygw": servertest.Versitygw} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := start(t)
			s, root := bucket(t, client(t, srv, s3.Options{}), srv.Bucket)
			k := root.Join("large")
			for _, wrong := range []int64{size - 1, size + 1} {
				_, err := s.Create(t.Context(), k, io.MultiReader(bytes.NewReader(data)), wrong)
				wantKind(t, "create with a wrong size", err, nil)
				if _, err := s.Stat(t.Context(), k); !errors.Is(err, objstore.ErrNotExist) {
					t.Errorf("after a body of another size than %d: %v", wrong, err)
				}
			}
			if _, err := s.Create(t.Context(), k, io.MultiReader(bytes.NewReader(data)), size); err != nil {
				t.Fatal(err)
			}
			other := bytes.Repeat([]byte("x"), size)
			_, err := s.Create(t.Context(), k, io.MultiReader(bytes.NewReader(other)), size)
			// A server may answer and hang up before it has read the body, and its answer
			// may be lost on the way: then the outcome is unknown, but never a success.
			if !errors.Is(err, objstore.ErrExist) {
				wantKind(t, "create again", err, nil)
			}
			rc, a, err := s.Get(t.Context(), k, objstore.Range{})
			if err != nil || a.Size != size {
				t.Fatal(a, err)
			}
			got, err := io.ReadAll(rc)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if err := rc.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
