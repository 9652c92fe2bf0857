package report

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// streamFindings adds n findings of ever new objects, in batches as a pass would,
// and gives the largest heap seen.
func streamFindings(tb testing.TB, w *Writer, n int) (maxHeap uint64) {
	tb.Helper()
	target := reconcile.Target{Name: "generic:orders", Store: "rocketkeep", Kind: "generic", Location: objstore.Location{Scheme: "s3", Bucket: "rocketkeep", Key: "orders.generic.lance"}}
	const batch = 1000
	var m runtime.MemStats
	for i := 0; i < n; i += batch {
		fs := make([]reconcile.Finding, 0, batch)
		for j := i; j < min(i+batch, n); j++ {
			ref := reconcile.Reference{Role: reconcile.RoleData, Path: fmt.Sprintf("data/%050x.lance", uint64(j)*0x9E3779B97F4A7C15), HasFragment: true, FragmentID: uint64(j),
				Version: 118, Size: int64(j + 1), PhysicalRows: 1000, LiveRows: 999}
			ref.Location = target.Location.Join(ref.Path)
			f := reconcile.NewFinding(target, ref, start)
			f.Verdict, f.Reason, f.Scopes = reconcile.Missing, ptr(reconcile.ReasonEverythingMissing), []string{"latest"}
			fs = append(fs, f)
		}
		if err := w.Findings(tb.Context(), fs); err != nil {
			tb.Fatal(err)
		}
		if i%10_000 == 0 {
			runtime.ReadMemStats(&m)
			maxHeap = max(maxHeap, m.HeapAlloc)
		}
	}
	return maxHeap
}

// Not parallel: other tests' garbage would count.
func TestAReportOf300000FindingsNeedsTheMemoryOfOneRowGroup(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s := newDirStore(t)
	w := newTestWriter(t, s)
	const n = 300_000
	peak := streamFindings(t, w, n)
	p := emptyPass()
	p.FindingsTruncated = true
	if _, err := w.Upload(t.Context(), finish(p, reconcile.ExitDivergence)); err != nil {
		t.Fatal(err)
	}
	if got := openParquet(t, s.part(KindFindings)).NumRows(); got != n {
		t.Errorf("%d rows, want %d", got, n)
	}
	// As Go values these findings take about 300 MB.
	const limit = 120 << 20
	if grown := int64(peak) - int64(before.HeapAlloc); grown > limit {
		t.Errorf("heap grew by %d MiB, want at most %d", grown>>20, limit>>20)
	} else {
		t.Logf("heap grew by %d MiB at most", grown>>20)
	}
}
