package lance

import (
	"fmt"
	"testing"
)

// largeManifest has n fragments as a table of 0.39.0 has them: one data file of
// three columns, every tenth with a deletion file.
func largeManifest(n int) []byte {
	fields := make([][]byte, 0, n+2)
	fields = append(fields, vint(3, 9), str(12, "8-92cdbd5b-7ff7-47e2-8c5a-3bd7ba6efd65.txn"))
	for i := range n {
		parts := [][]byte{sub(2, str(1, fmt.Sprintf("%024b%026x.lance", i, i*7919)), packed(2, 0, 1, 2), packed(3, 0, 1, 2), vint(4, 2), vint(5, 2), vint(6, 123456)), vint(4, 1000)}
		if i%10 == 0 {
			parts = append(parts, sub(3, vint(2, 8), vint(3, uint64(i)<<33), vint(4, 17)))
		}
		fields = append(fields, fragment(uint64(i), parts...))
	}
	return manifestFile(fields...)
}

func BenchmarkFiles100kFragments(b *testing.B) {
	const n = 100_000
	m := mustDecode(b, largeManifest(n))
	b.ReportAllocs()
	for b.Loop() {
		files := 0
		for _, err := range m.Files() {
			if err != nil {
				b.Fatal(err)
			}
			files++
		}
		if files != n+n/10+1 {
			b.Fatal(files)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/fragment")
}

func BenchmarkDecode100kFragments(b *testing.B) {
	const n = 100_000
	file := largeManifest(n)
	b.SetBytes(int64(len(file)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeManifest(file); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/fragment")
}

func BenchmarkFragments100k(b *testing.B) {
	const n = 100_000
	m := mustDecode(b, largeManifest(n))
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range m.Fragments() {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/fragment")
}
