package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/servertest"
)

// answerTime is what every request takes at least: a store in the same region.
const answerTime = 10 * time.Millisecond

// BenchmarkWarmPass looks at tables on S3 with the built binary: without a memory of
// manifests, with an empty one, and with what the pass before kept. x-warm is the time
// of a warm pass as a share of one without memory, x-cold what filling it costs,
// x-requests the share of requests that a warm pass sends. Tables with one manifest
// gain a request; tables with many retained versions gain nearly all of their pass.
func BenchmarkWarmPass(b *testing.B) {
	for _, c := range []struct {
		name                        string
		tables, versions, fragments int
	}{
		{"newest", 200, 1, 3},
		{"retained", 8, 100, 100},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := servertest.S3(b)
			var wg sync.WaitGroup
			for i := range c.tables {
				wg.Go(func() { manyVersions(b, s, fmt.Sprintf("r/t%04d.lance/", i), c.versions, c.fragments) })
			}
			wg.Wait()
			s.Add(servertest.Rule{Delay: answerTime})
			off := filepath.Join(b.TempDir(), "off.yaml")
			if err := os.WriteFile(off, []byte("work: {max: 0}\n"), 0o600); err != nil {
				b.Fatal(err)
			}
			var took [3]time.Duration
			var sent [3]int
			for b.Loop() {
				cache := "XDG_CACHE_HOME=" + b.TempDir()
				for i, env := range []string{"RECONCILE_CONFIG=" + off, cache, cache} {
					s.ClearLog()
					took[i] += onS3(b, s, env)
					sent[i] += len(s.Requests())
				}
			}
			b.ReportMetric(took[2].Seconds()/took[0].Seconds(), "x-warm")
			b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "x-cold")
			b.ReportMetric(float64(sent[2])/float64(sent[0]), "x-requests")
		})
	}
}

// manyVersions puts a table each of whose versions names the same files.
func manyVersions(b *testing.B, s *servertest.Server, root string, versions, fragments int) {
	t := lancetest.New().Version(1).NoTransaction()
	for range fragments {
		t.Fragment(10)
	}
	for v := range versions {
		if v > 0 {
			t = t.Next().NoTransaction()
			s.Put(b, root+t.ManifestName(), t.Manifest())
			continue
		}
		t.WriteTo(func(name string, data []byte) { s.Put(b, root+name, data) })
	}
}

// onS3 is the time of one check of everything below r, in a home of its own.
func onS3(b *testing.B, s *servertest.Server, env string) time.Duration {
	b.Helper()
	bin, err := build()
	if err != nil {
		b.Fatal(err)
	}
	home := b.TempDir()
	cmd := exec.Command(bin, "check", s.URI("r"), "--versions", "all", "--quiet", "--output", "json")
	cmd.Env = append(append(s.Env(), "PATH="+os.Getenv("PATH"), "HOME="+home, "XDG_STATE_HOME="+home), env)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	start := time.Now()
	if err := cmd.Run(); err != nil {
		b.Fatalf("%v\n%s", err, stderr.String())
	}
	return time.Since(start)
}
