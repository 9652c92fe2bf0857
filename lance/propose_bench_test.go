package lance

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/rocketkeep/reconcile/internal/lancetest"
)

// benchmarkDrop proposes a version without every hundredth fragment.
func benchmarkDrop(b *testing.B, fragments int) {
	m := mustDecode(b, lancetest.Large{Fragments: fragments, DeletionEvery: 10}.Manifest())
	var ids []uint64
	for i := 0; i < fragments; i += 100 {
		ids = append(ids, uint64(i))
	}
	b.ReportAllocs()
	size := 0
	for b.Loop() {
		size = len(propose(b)(m.ProposeDelete(ids, "lost", commitInfo())).Manifest())
	}
	b.ReportMetric(float64(size), "manifest-bytes")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(fragments), "ns/fragment")
}

func BenchmarkProposeDelete(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkDrop(b, n) })
	}
}

// A new version costs its own bytes, and what reading them again costs.
func TestADropOfALargeManifestAllocatesItsBytesOnce(t *testing.T) {
	const fragments = 100_000
	file := lancetest.Large{Fragments: fragments, DeletionEvery: 10}.Manifest()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m := mustDecode(t, file)
	runtime.ReadMemStats(&after)
	reading := after.TotalAlloc - before.TotalAlloc
	runtime.ReadMemStats(&before)
	p := propose(t)(m.ProposeDelete([]uint64{0, 5_000, fragments - 1}, "lost", commitInfo()))
	runtime.ReadMemStats(&after)
	if got, limit := after.TotalAlloc-before.TotalAlloc, uint64(len(p.Manifest()))+reading+256<<10; got > limit {
		t.Errorf("it allocated %d bytes for a manifest of %d, more than %d", got, len(p.Manifest()), limit)
	}
}
