package bench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/servertest"
)

// maxPerDamaged is what a damaged object may cost, in bytes of the whole process's
// memory over that of the same look at an eighth of the damage.
const maxPerDamaged = 3_000

// BenchmarkMassDamage looks, with the built binary, a ledger, JSON and reports, at what is
// gone but for one object: twice, so that the second look meets the findings of the first
// in its ledger. B/damaged is the growth of the process's memory by object over a look at
// an eighth of them; it fails over its limit. x-time is the processor time by object of the larger
// look as a share of the smaller's, 1 when nothing is quadratic.
func BenchmarkMassDamage(b *testing.B) {
	for _, c := range []struct {
		name string
		n    int
		make func(b *testing.B, dir string, n int) (args, env []string)
	}{
		{"table", 200_000, goneTable},
		{"blobs", 200_000, goneBlobs},
		{"s3", 40_000, goneOnS3},
	} {
		b.Run(c.name, func(b *testing.B) {
			type figures struct {
				rss     int64
				seconds float64
			}
			var few, many [2]figures
			measure := func(n int, into *[2]figures) {
				dir := b.TempDir()
				args, env := c.make(b, dir, n)
				for i := range into {
					rss, seconds := lookAtDamage(b, dir, n, args, env)
					into[i].rss, into[i].seconds = max(into[i].rss, rss), into[i].seconds+seconds
				}
			}
			for b.Loop() {
				measure(c.n/8, &few)
				measure(c.n, &many)
			}
			for i, word := range []string{"", "-again"} {
				per := float64(many[i].rss-few[i].rss) / float64(c.n-c.n/8)
				b.ReportMetric(per, "B/damaged"+word)
				b.ReportMetric(many[i].seconds/few[i].seconds/8, "x-time"+word)
				b.ReportMetric(float64(many[i].rss)/1e6, "rss-MB"+word)
				if c.n >= 200_000 && per > maxPerDamaged {
					b.Errorf("a damaged object costs %.0f bytes%s, at most %d", per, word, maxPerDamaged)
				}
			}
		})
	}
}

func goneTable(b *testing.B, dir string, n int) (args, env []string) {
	l, root := lancetest.Large{Fragments: n}, filepath.Join(dir, "gone.lance")
	write(b, filepath.Join(root, l.ManifestName()), l.Manifest())
	for name := range l.Files() {
		write(b, filepath.Join(root, name), l.DataFile())
		break
	}
	return []string{root}, nil
}

func goneOnS3(b *testing.B, _ string, n int) (args, env []string) {
	s, l := servertest.S3(b), lancetest.Large{Fragments: n}
	s.Put(b, "gone.lance/"+l.ManifestName(), l.Manifest())
	for name := range l.Files() {
		s.Put(b, "gone.lance/"+name, l.DataFile())
		break
	}
	return []string{s.URI("gone.lance")}, append(s.Env(), "PATH="+os.Getenv("PATH"), "HOME="+b.TempDir())
}

func goneBlobs(b *testing.B, dir string, n int) (args, env []string) {
	var rows strings.Builder
	w := csv.NewWriter(&rows)
	_ = w.Write([]string{"key", "size"})
	key := func(i int) string { return fmt.Sprintf("media/%03d/%032x.bin", i%1000, i) }
	for i := range n {
		_ = w.Write([]string{key(i), strconv.Itoa(1000)})
	}
	if w.Flush(); w.Error() != nil {
		b.Fatal(w.Error())
	}
	write(b, filepath.Join(dir, "refs.csv"), []byte(rows.String()))
	write(b, filepath.Join(dir, "blobs", key(0)), make([]byte, 1000))
	config := fmt.Sprintf("blobs: [{name: gone, uri: %q, references: {csv: {uri: %q, key: key, size: size}}}]\n", filepath.Join(dir, "blobs"), filepath.Join(dir, "refs.csv"))
	write(b, filepath.Join(dir, "blobs.yaml"), []byte(config))
	return []string{"--config", filepath.Join(dir, "blobs.yaml")}, nil
}

func write(b *testing.B, name string, data []byte) {
	b.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		b.Fatal(err)
	}
}

// lookAtDamage is one check of n objects of which one is there: the most memory (bytes)
// that the process held, and how long it took.
func lookAtDamage(b *testing.B, dir string, n int, args, env []string) (maxRSS int64, seconds float64) {
	b.Helper()
	bin, err := build()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(bin, append([]string{"check", "--database", "sqlite:" + filepath.Join(dir, "ledger.db"), "--confirm-after", "0s", "--min-manifest-age", "0s",
		"--quiet", "--output", "json", "--report", "file://" + b.TempDir()}, args...)...)
	var stdout, stderr strings.Builder
	cmd.Env, cmd.Stdout, cmd.Stderr = env, &stdout, &stderr
	_ = cmd.Run() // damage is no success: what it printed tells
	var doc struct {
		Totals   struct{ Verdicts map[string]int }
		Findings []any
	}
	if err := json.Unmarshal([]byte(stdout.String()), &doc); err != nil {
		b.Fatalf("%v\n%s", err, stderr.String())
	}
	if v := doc.Totals.Verdicts; v["missing"]+v["pending"] != n-1 || v["present"] != 1 || len(doc.Findings) != min(n-1, 10_000) {
		b.Fatalf("verdicts %v, %d findings in the document; want %d missing\n%s", v, len(doc.Findings), n-1, stderr.String())
	}
	state := cmd.ProcessState
	return state.SysUsage().(*syscall.Rusage).Maxrss << 10, (state.UserTime() + state.SystemTime()).Seconds()
}
