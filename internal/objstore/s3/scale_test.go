//go:build scale

package s3_test

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/s3"
	"github.com/rocketkeep/reconcile/internal/servertest"
)

// TestABodyAboveOneRequest puts more than S3's own limit of one request from a file.
// It needs 6 GiB of disk.
func TestABodyAboveOneRequest(t *testing.T) {
	const size = 5<<30 + 3
	f, err := os.Create(filepath.Join(t.TempDir(), "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // what it holds is zeros
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	srv := servertest.Versitygw(t)
	s, root := bucket(t, client(t, srv, s3.Options{MultipartConditions: "true"}), srv.Bucket)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	a, err := s.Create(t.Context(), root.Join("large"), io.NewSectionReader(f, 0, size), size)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	t.Logf("%s, %d MB allocated in all, %d MB from the system", time.Since(start), (after.TotalAlloc-before.TotalAlloc)>>20, after.Sys>>20)
	if seen, err := s.Stat(t.Context(), root.Join("large")); err != nil || seen.Size != size || seen.ETag != a.ETag {
		t.Errorf("stat %+v, %v", seen, err)
	}
	if after.Sys > 200<<20 {
		t.Errorf("%d MB of memory", after.Sys>>20)
	}
	_, err = s.Create(t.Context(), root.Join("large"), io.NewSectionReader(f, 0, size), size)
	wantKind(t, "create again", err, objstore.ErrExist)
}
