package file

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// TestADiskThatHangsKeepsNobody: callers go when their context ends, and the calls
// that stay stuck are bounded.
func TestADiskThatHangsKeepsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := New(objstore.Location{Scheme: "file", Key: "/"})
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		var stuck atomic.Int64
		for range maxStuck + 10 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := run(ctx, s, func() (int, error) {
				stuck.Add(1)
				<-release
				return 1, nil
			})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v", err)
			}
			cancel()
		}
		if stuck.Load() != maxStuck {
			t.Errorf("%d calls stuck, want %d", stuck.Load(), maxStuck)
		}
		close(release)
		synctest.Wait()
		if n, err := run(t.Context(), s, func() (int, error) { return 2, nil }); n != 2 || err != nil {
			t.Errorf("after the disk is back: %d, %v", n, err)
		}
	})
}
