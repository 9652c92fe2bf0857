package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/s3"
	"github.com/rocketkeep/reconcile/internal/servertest"
)

const (
	partSize = 5 << 20 // the least that S3 takes
	partBody = 2*partSize + 1234
)

// inParts is a real server that holds to conditions on completions, with a script in
// front, and a store that puts what is above one part in parts.
func inParts(t *testing.T, change func(*s3.Options)) (*servertest.Server, *s3.Store, objstore.Location) {
	t.Helper()
	srv := servertest.Proxy(t, servertest.Versitygw(t))
	opts := s3.Options{MaxPut: partSize, PartSize: partSize, MultipartConditions: "true"}
	if change != nil {
		change(&opts)
	}
	s, root := bucket(t, client(t, srv, opts), srv.Bucket)
	return srv, s, root.Join("large")
}

// large is a body that differs in every part.
func large(seed byte) []byte {
	data := make([]byte, partBody)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data) // never fails
	return data
}

func wantBytes(t *testing.T, s *s3.Store, loc objstore.Location, want []byte) {
	t.Helper()
	rc, a, err := s.Get(t.Context(), loc, objstore.Range{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(rc)
	if err := errors.Join(err, rc.Close()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) || a.Size != int64(len(want)) {
		t.Errorf("%d bytes (size %d) that are not the %d that were put", len(got), a.Size, len(want))
	}
}

func wantNoUploads(t *testing.T, srv *servertest.Server) {
	t.Helper()
	srv.ClearRules()
	if got := srv.Uploads(t); len(got) != 0 {
		t.Errorf("uploads left behind: %q", got)
	}
}

func TestLargeBodiesGoUpInParts(t *testing.T) {
	t.Parallel()
	srv, s, k := inParts(t, nil)
	first, second := large(1), large(2)
	a, err := s.Create(t.Context(), k, bytes.NewReader(first), partBody)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := s.Stat(t.Context(), k)
	if err != nil || a.ETag != seen.ETag || a.Size != partBody || a.Location != k || !strings.Contains(a.ETag, "-3") {
		t.Errorf("put %+v, stat %+v, %v", a, seen, err)
	}
	wantBytes(t, s, k, first)

	srv.ClearLog()
	_, err = s.Create(t.Context(), k, bytes.NewReader(second), partBody)
	wantKind(t, "create again", err, objstore.ErrExist)
	_, err = s.Replace(t.Context(), k, "another", bytes.NewReader(second), partBody)
	wantKind(t, "replace with another ETag", err, objstore.ErrExist)
	_, err = s.Replace(t.Context(), k.Parent().Join("never"), a.ETag, bytes.NewReader(second), partBody)
	wantKind(t, "replace of nothing", err, objstore.ErrNotExist)
	for _, r := range srv.Requests() {
		if r.Op != "HEAD" {
			t.Errorf("%s for what can be seen to be in vain", r)
		}
	}
	wantBytes(t, s, k, first)
	b, err := s.Replace(t.Context(), k, a.ETag, bytes.NewReader(second), partBody)
	if err != nil || b.ETag == a.ETag {
		t.Fatalf("replace: %+v, %v", b, err)
	}
	wantBytes(t, s, k, second)
	wantNoUploads(t, srv)
}

func TestLargeBodiesOverAMarker(t *testing.T) {
	t.Parallel()
	srv, s, k := inParts(t, nil)
	srv.EnableVersions(t)
	srv.Put(t, "large", []byte("old"))
	srv.Remove(t, "large")
	marker := ""
	for a := range s.Versions(t.Context(), k) {
		marker = a.VersionID
		break
	}
	if _, err := s.CreateOverMarker(t.Context(), k, marker, bytes.NewReader(large(1)), partBody); err != nil {
		t.Fatal(err)
	}
	wantBytes(t, s, k, large(1))
	wantNoUploads(t, srv)
}

// TestTheCompletionDecides: what another writer does after the last look.
func TestTheCompletionDecides(t *testing.T) {
	t.Parallel()
	complete := func(do func()) servertest.Rule {
		return servertest.Rule{Op: "POST", Query: "uploadId=", Count: 1, Before: do}
	}
	t.Run("create", func(t *testing.T) {
		t.Parallel()
		srv, s, k := inParts(t, nil)
		srv.Add(complete(func() { srv.Put(t, "large", []byte("theirs")) }))
		_, err := s.Create(t.Context(), k, bytes.NewReader(large(1)), partBody)
		wantKind(t, "create", err, objstore.ErrExist)
		wantBytes(t, s, k, []byte("theirs"))
		wantNoUploads(t, srv)
	})
	t.Run("replace", func(t *testing.T) {
		t.Parallel()
		srv, s, k := inParts(t, nil)
		srv.Put(t, "large", []byte("first"))
		a, err := s.Stat(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		srv.Add(complete(func() { srv.Put(t, "large", []byte("theirs")) }))
		_, err = s.Replace(t.Context(), k, a.ETag, bytes.NewReader(large(1)), partBody)
		wantKind(t, "replace", err, objstore.ErrExist)
		wantBytes(t, s, k, []byte("theirs"))
		wantNoUploads(t, srv)
	})
}

func TestPartsThatFail(t *testing.T) {
	t.Parallel()
	part := servertest.Rule{Op: "PUT", Query: "partNumber=2", Status: http.StatusInternalServerError, Code: "InternalError"}
	t.Run("once", func(t *testing.T) {
		t.Parallel()
		srv, s, k := inParts(t, nil)
		once := part
		once.Count = 1
		srv.Add(once)
		if _, err := s.Create(t.Context(), k, bytes.NewReader(large(1)), partBody); err != nil {
			t.Fatal(err)
		}
		wantBytes(t, s, k, large(1))
	})
	t.Run("always", func(t *testing.T) {
		t.Parallel()
		srv, s, k := inParts(t, nil)
		srv.Add(part)
		_, err := s.Create(t.Context(), k, bytes.NewReader(large(1)), partBody)
		if e := wantKind(t, "create", err, nil); e.Status != 500 || !strings.Contains(err.Error(), "part 2") {
			t.Errorf("got %v", err)
		}
		wantNoUploads(t, srv)
		if _, err := s.Stat(t.Context(), k); !errors.Is(err, objstore.ErrNotExist) {
			t.Errorf("afterwards: %v", err)
		}
	})
	t.Run("and cannot be given back", func(t *testing.T) {
		t.Parallel()
		srv, s, k := inParts(t, nil)
		srv.Add(part, servertest.Rule{Op: "DELETE", Status: http.StatusForbidden, Code: "AccessDenied"})
		_, err := s.Create(t.Context(), k, bytes.NewReader(large(1)), partBody)
		if e := wantKind(t, "create", err, nil); e.Status != 500 || !strings.Contains(err.Error(), "could not be given back") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("because the context ends", func(t *testing.T) {
		t.Parallel()
		srv, s, k := inParts(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		srv.Add(servertest.Rule{Op: "PUT", Query: "partNumber=3", Before: cancel})
		_, err := s.Create(ctx, k, bytes.NewReader(large(1)), partBody)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		wantNoUploads(t, srv)
	})
}

// TestACompletionWithoutAnswer: the outcome is unknown, so nothing is cleaned up.
func TestACompletionWithoutAnswer(t *testing.T) {
	t.Parallel()
	srv, s, k := inParts(t, nil)
	srv.Add(servertest.Rule{Op: "POST", Query: "uploadId=", Drop: true})
	_, err := s.Create(t.Context(), k, bytes.NewReader(large(1)), partBody)
	if e := wantKind(t, "create", err, nil); e.Status != 0 {
		t.Errorf("got %v", err)
	}
	srv.ClearRules()
	if diff := cmp.Diff([]string{"large"}, srv.Uploads(t)); diff != "" {
		t.Errorf("uploads (-want +got):\n%s", diff)
	}
}

// TestLargeBodiesNeedAServerThatHoldsToConditions: one that does not would overwrite.
func TestLargeBodiesNeedAServerThatHoldsToConditions(t *testing.T) {
	t.Parallel()
	for _, conditions := range []string{"", "auto", "false"} {
		srv, s, k := inParts(t, func(o *s3.Options) { o.MultipartConditions = conditions })
		srv.ClearLog()
		_, err := s.Create(t.Context(), k, bytes.NewReader(large(1)), partBody)
		wantKind(t, "create", err, objstore.ErrUnsupported)
		_, err = s.Replace(t.Context(), k, "tag", bytes.NewReader(large(1)), partBody)
		wantKind(t, "replace", err, objstore.ErrUnsupported)
		if got := srv.Requests(); len(got) != 0 {
			t.Errorf("%q: requests %v", conditions, got)
		}
	}
	_, err := s3.NewClient(t.Context(), s3.Options{MultipartConditions: "maybe"})
	if err == nil {
		t.Error("conditions may be \"maybe\"")
	}
}

// onlySeeks is a body that can seek and not be read at offsets.
type onlySeeks struct{ io.ReadSeeker }

// TestBodiesAreReadWhereTheyAre: neither memory nor another file is needed for one that
// can seek; it is taken from its present position.
func TestBodiesAreReadWhereTheyAre(t *testing.T) {
	srv, s, k := inParts(t, nil)
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "absent")) // staging would fail
	data := large(3)
	name := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(name, append([]byte("head"), data...), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(t *testing.T) *os.File {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() }) // read only
		if _, err := f.Seek(4, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		return f
	}
	small := k.Parent().Join("in-one")
	whole, _ := bucket(t, client(t, srv, s3.Options{}), srv.Bucket)
	for name, body := range map[string]func(*testing.T) io.Reader{
		"a file":               func(t *testing.T) io.Reader { return open(t) },
		"a section of a file":  func(t *testing.T) io.Reader { return io.NewSectionReader(open(t), 4, partBody) },
		"what can seek at all": func(t *testing.T) io.Reader { return onlySeeks{open(t)} },
	} {
		t.Run(name, func(t *testing.T) {
			loc := k.Parent().Join(strings.ReplaceAll(name, " ", "-"))
			if _, err := s.Create(t.Context(), loc, body(t), partBody); err != nil {
				t.Fatal(err)
			}
			wantBytes(t, s, loc, data)
			loc = small.Join(strings.ReplaceAll(name, " ", "-"))
			if _, err := whole.Create(t.Context(), loc, body(t), partBody); err != nil {
				t.Fatal(err)
			}
			wantBytes(t, s, loc, data)
		})
	}
	if _, err := s.Create(t.Context(), k, io.MultiReader(bytes.NewReader(make([]byte, 17<<20))), 17<<20); err == nil {
		t.Error("a stream needs staging: the test does not notice any")
	}
}
