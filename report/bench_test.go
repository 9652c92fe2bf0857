package report

import (
	"testing"

	"github.com/rocketkeep/reconcile/reconcile"
)

// BenchmarkFindings writes and uploads a report of 300,000 findings. It tells rows
// per second, bytes per row on disk and the largest heap.
func BenchmarkFindings(b *testing.B) {
	const n = 300_000
	var peak uint64
	var bytes int64
	for b.Loop() {
		s := &dirStore{dir: b.TempDir()}
		w, err := NewWriter(b.Context(), Options{Store: s, Base: s.base(), PassID: passID, PassDate: start, TempDir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		peak = max(peak, streamFindings(b, w, n))
		p := emptyPass()
		p.FindingsTruncated = true
		if _, err := w.Upload(b.Context(), finish(p, reconcile.ExitDivergence)); err != nil {
			b.Fatal(err)
		}
		bytes = fileSize(b, s.part(KindFindings))
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(bytes)/n, "disk-B/row")
	b.ReportMetric(float64(peak)/(1<<20), "peak-heap-MiB")
}
