// Package bench measures what users feel: how long a look takes, how much memory
// the whole process needs, and what a HEAD costs. It prints ratios within one run,
// since absolute times say more of the machine than of the program.
//
//	make bench
package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
)

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "reconcile-bench-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "reconcile")
	out, err := exec.Command("go", "build", "-o", bin, "github.com/rocketkeep/reconcile/cmd/reconcile").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return bin, nil
})

// process runs the program once and tells its time, its processor time and the
// most memory that it held (bytes).
func process(b *testing.B, args ...string) (took, cpu time.Duration, maxRSS int64) {
	b.Helper()
	bin, err := build()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(bin, args...)
	start := time.Now()
	out, err := cmd.CombinedOutput()
	took = time.Since(start)
	if err != nil {
		b.Fatalf("%v: %v\n%s", args, err, out)
	}
	ru := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return took, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), ru.Maxrss << 10
}

// BenchmarkCheckProcess looks at whole tables on local disk with the built binary.
// rss-MB is the whole process; x-stat compares the time with a plain stat of the
// same files by as many goroutines.
func BenchmarkCheckProcess(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("fragments=%d", n), func(b *testing.B) {
			root := filepath.Join(b.TempDir(), "big.lance")
			if err := lancetest.SparseTable(root, n); err != nil {
				b.Fatal(err)
			}
			plain := statAll(b, filepath.Join(root, "data"))
			var took time.Duration
			var rss int64
			for b.Loop() {
				t, _, r := process(b, "check", root, "--quiet", "--output", "json", "--report", "file://"+b.TempDir())
				took += t
				rss = max(rss, r)
			}
			b.ReportMetric(float64(rss)/1e6, "rss-MB")
			b.ReportMetric(float64(n)*float64(b.N)/took.Seconds(), "fragments/s")
			b.ReportMetric(took.Seconds()/float64(b.N)/plain.Seconds(), "x-stat")
		})
	}
}

// statAll is the floor: nothing but the stats.
func statAll(b *testing.B, dir string) time.Duration {
	b.Helper()
	start := time.Now()
	entries, err := os.ReadDir(dir)
	if err != nil {
		b.Fatal(err)
	}
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, e := range entries {
		g.Go(func() error { _, err := os.Stat(filepath.Join(dir, e.Name())); return err })
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	return time.Since(start)
}

// BenchmarkHead compares the processor time of a HEAD on the hot path with one
// through the vendor's own client, against the same trivial server in this
// process. x-sdk below 1 is what the hot path saves.
func BenchmarkHead(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "123")
		w.Header().Set("ETag", `"0123456789abcdef0123456789abcdef"`)
	}))
	defer srv.Close()
	b.Setenv("AWS_ACCESS_KEY_ID", "k")
	b.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	b.Setenv("AWS_ENDPOINT_URL", srv.URL)
	cpu := map[bool]time.Duration{}
	for _, oracle := range []bool{true, false} {
		name := map[bool]string{true: "sdk", false: "hot"}[oracle]
		b.Run(name, func(b *testing.B) {
			set := factory.New(factory.Options{HeadOracle: oracle, Attempts: 1})
			defer set.Close()
			loc, err := set.Locate("s3://bucket/key")
			if err != nil {
				b.Fatal(err)
			}
			r, err := set.Reader(context.Background(), loc)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			start := cpuTime(b)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if at, err := r.Stat(context.Background(), objstore.Location(loc)); err != nil || at.Size != 123 {
						b.Errorf("head: %v %v", at.Size, err)
						return
					}
				}
			})
			per := (cpuTime(b) - start) / time.Duration(b.N)
			cpu[oracle] = per
			b.ReportMetric(float64(per.Nanoseconds()), "cpu-ns/head")
			if sdk := cpu[true]; !oracle && sdk > 0 {
				b.ReportMetric(float64(per)/float64(sdk), "x-sdk")
			}
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		b.Fatal(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}
