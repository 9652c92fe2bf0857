package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/lancetest"
)

// The fleet that this is built for: ten thousand registered stores below one root,
// each of a few fragments, with a registry that has seen better days.
var fleet = lancetest.Fleet{Stores: 10_000, Fragments: 3, Deleted: 300, Doubled: 100}

const (
	// maxDiscovery and maxFleetRSS are what the fleet may cost.
	maxDiscovery = 5 * time.Second
	maxFleetRSS  = 250e6
)

// BenchmarkFleetProcess runs a whole pass over the fleet with the built binary, on
// local disk, with its ledger. discovery-s is the time from the start of the process
// to the first look at a store, pass-s the whole, rss-MB the most memory that the
// process held. It fails when a figure is over its limit.
func BenchmarkFleetProcess(b *testing.B) {
	root := filepath.Join(b.TempDir(), "stores")
	if err := fleet.WriteDir(root); err != nil {
		b.Fatal(err)
	}
	for _, mode := range []string{"registry", "both"} {
		b.Run("discover="+mode, func(b *testing.B) {
			var discovery, whole time.Duration
			var rss int64
			for b.Loop() {
				d, w, r := fleetPass(b, root, mode)
				discovery, whole, rss = discovery+d, whole+w, max(rss, r)
			}
			n := time.Duration(b.N)
			b.ReportMetric((discovery / n).Seconds(), "discovery-s")
			b.ReportMetric((whole / n).Seconds(), "pass-s")
			b.ReportMetric(float64(rss)/1e6, "rss-MB")
			if discovery/n > maxDiscovery || float64(rss) > maxFleetRSS {
				b.Errorf("discovery took %v (at most %v), the process held %d MB (at most %d)", discovery/n, maxDiscovery, rss/1e6, int(maxFleetRSS/1e6))
			}
		})
	}
}

// fleetPass is one `reconcile run` with a ledger of its own.
func fleetPass(b *testing.B, root, mode string) (discovery, whole time.Duration, maxRSS int64) {
	b.Helper()
	bin, err := build()
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	config := filepath.Join(dir, "reconcile.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "database: %q\nstores: [{name: rk, uri: %q, discover: %s}]\n", "sqlite:"+filepath.Join(dir, "ledger.db"), root, mode), 0o600); err != nil {
		b.Fatal(err)
	}
	var stdout, stderr strings.Builder
	cmd := exec.Command(bin, "run", "--config", config, "--output", "json", "--log-format", "json", "--log-level", "info")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	err = cmd.Run()
	whole = time.Since(start)
	if err != nil {
		b.Fatalf("run: %v\n%s", err, stderr.String())
	}
	var doc struct {
		Targets []struct {
			Kind     string
			Registry *string
		}
	}
	if err := json.Unmarshal([]byte(stdout.String()), &doc); err != nil {
		b.Fatal(err)
	}
	ok := 0
	for _, t := range doc.Targets {
		if t.Registry != nil && *t.Registry == "ok" {
			ok++
		}
	}
	if ok != fleet.Stores {
		b.Fatalf("%d stores were looked at, want %d", ok, fleet.Stores)
	}
	for line := range strings.Lines(stderr.String()) {
		var l struct {
			Time time.Time `json:"time"`
			Msg  string    `json:"msg"`
		}
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "look begins" {
			discovery = l.Time.Sub(start)
		}
	}
	if discovery == 0 {
		b.Fatalf("the log does not say when the look began\n%s", stderr.String())
	}
	return discovery, whole, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
}
