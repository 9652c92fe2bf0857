package datafile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkRead decodes one column and touches each of its values. The files are
// those of the tests; DATAFILE_BENCH names a folder of larger ones.
func BenchmarkRead(b *testing.B) {
	dir := "testdata"
	if d := os.Getenv("DATAFILE_BENCH"); d != "" {
		dir = d
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.lance"))
	if err != nil || len(paths) == 0 {
		b.Fatalf("no data files: %v", err)
	}
	for _, path := range paths {
		f := openFile(b, path)
		for _, field := range f.Fields() {
			b.Run(strings.TrimSuffix(filepath.Base(path), ".lance")+"/"+field.Name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if n := touch(b, f, field); int64(n) != f.Rows {
						b.Fatalf("%d rows", n)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(f.Rows), "ns/row")
			})
		}
	}
}

// touch reads all values of a field and gives how many rows there were.
func touch(b *testing.B, f *File, field *Field) (rows int) {
	for batch, err := range f.Read(b.Context(), []*Field{field}) {
		if err != nil {
			b.Fatal(err)
		}
		a := batch.Columns[0]
		for i := range a.Len() {
			switch a.typ.kind {
			case kindInt:
				a.Int(i)
			case kindBytes:
				a.Bytes(i)
			case kindList:
				a.List(i)
			case kindStruct:
				a.Null(i)
			}
		}
		rows += batch.Rows
	}
	return rows
}
