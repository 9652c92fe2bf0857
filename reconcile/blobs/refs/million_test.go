package refs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/objstore"
)

// endless is a store of one file of equally long rows, which are made when they are
// read.
type endless struct {
	objstore.Reader
	header string
	row    string // a format of one number
	rows   int64
}

func (e *endless) Get(_ context.Context, loc objstore.Location, r objstore.Range) (io.ReadCloser, objstore.Attrs, error) {
	width := int64(len(fmt.Sprintf(e.row, 0)))
	size := int64(len(e.header)) + e.rows*width
	begin, end, err := r.Bounds(size)
	if err != nil {
		return nil, objstore.Attrs{}, err
	}
	var b bytes.Buffer
	head := int64(len(e.header))
	if begin < head {
		b.WriteString(e.header[begin:min(head, end)])
		begin = head
	}
	for n := (begin - head) / width; head+n*width < end; n++ {
		line := fmt.Sprintf(e.row, n)
		b.WriteString(line[max(0, begin-head-n*width):min(width, end-head-n*width)])
	}
	return io.NopCloser(&b), objstore.Attrs{Location: loc, Size: size, ETag: "e"}, nil
}

const millionSum = "sha256:%064[1]x"

// readers are one of each kind, with so many records each.
func readers(tb testing.TB, n int) map[string]func() Reader {
	cols := Columns{Key: "key", Size: "size", Checksum: "checksum"}
	dir := tb.TempDir()
	key := func(i int) string { return fmt.Sprintf("objects/%012d/payload.bin", i) }
	sum := func(i int) string { return fmt.Sprintf(millionSum, i) }

	writeParquet(tb, filepath.Join(dir, "refs.parquet"), n, key, sum)
	table := lancetest.New()
	const fragment = 100_000
	for from := 0; from < n; from += fragment {
		rows := min(fragment, n-from)
		keys, sums, sizes := make([]string, rows), make([]string, rows), make([]int64, rows)
		for i := range rows {
			keys[i], sums[i], sizes[i] = key(from+i), sum(from+i), int64(from+i+1)
		}
		table.Values(lancetest.Strings("payload_uri", keys...), lancetest.Int64s("payload_size", sizes...), lancetest.Strings("payload_checksum", sums...))
	}
	table.WriteDir(tb, filepath.Join(dir, "t.lance"))
	pq, pqAt := disk(tb, filepath.Join(dir, "refs.parquet"))
	ln, lnAt := disk(tb, filepath.Join(dir, "t.lance"))
	return map[string]func() Reader{
		"csv": func() Reader {
			return CSV(&endless{header: "key,size,checksum\n", row: "objects/%012[1]d/payload.bin,1%09[1]d," + millionSum + "\n", rows: int64(n)}, refsAt, cols, Options{})
		},
		"jsonl": func() Reader {
			return JSONLines(&endless{row: `{"key":"objects/%012[1]d/payload.bin","size":1%09[1]d,"checksum":"` + millionSum + "\"}\n", rows: int64(n)}, refsAt, cols, Options{})
		},
		"parquet": func() Reader { return Parquet(pq, pqAt, cols, Options{}) },
		"lance":   func() Reader { return mustLance(tb, ln, lnAt, Columns{}, "") },
	}
}

func writeParquet(tb testing.TB, path string, n int, key, sum func(int) string) {
	tb.Helper()
	type refRow struct {
		Key      string `parquet:"key"`
		Size     int64  `parquet:"size"`
		Checksum string `parquet:"checksum"`
	}
	f, err := os.Create(path)
	if err != nil {
		tb.Fatal(err)
	}
	w := parquet.NewGenericWriter[refRow](f, parquet.MaxRowsPerRowGroup(122_880), parquet.Compression(&parquet.Zstd))
	for i := range n {
		if _, err := w.Write([]refRow{{key(i), int64(i + 1), sum(i)}}); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	if err := f.Close(); err != nil {
		tb.Fatal(err)
	}
}

// walkAll walks to the end and gives how many records there were and the most memory
// that was in use at any of some moments.
func walkAll(tb testing.TB, r Reader, every int) (n int, most uint64) {
	tb.Helper()
	var m runtime.MemStats
	for _, err := range r.Records(tb.Context(), "") {
		if err != nil {
			tb.Fatal(err)
		}
		if n++; every > 0 && n%every == 0 {
			runtime.GC()
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
		}
	}
	return n, most
}

// Four times as many records take no more memory, but for the digests of their keys.
func TestRecordsStream(t *testing.T) {
	if testing.Short() {
		t.Skip("reads a hundred thousand records")
	}
	const few, many = 20_000, 80_000
	small, large := readers(t, few), readers(t, many)
	u, _ := database(t, fmt.Sprintf(`CREATE TABLE m AS SELECT 'objects/' || lpad(i::text, 12, '0') AS key, i AS size, 'sha256:' || lpad(i::text, 64, '0') AS checksum FROM generate_series(1, %d) i`, many))
	small["postgres"] = func() Reader {
		return mustPostgres(t, u, fmt.Sprintf("SELECT * FROM m WHERE size <= %d", few), Options{})
	}
	large["postgres"] = func() Reader { return mustPostgres(t, u, "SELECT * FROM m", Options{}) }
	for name := range small {
		n, before := walkAll(t, small[name](), few/5)
		if n != few {
			t.Errorf("%s: %d records", name, n)
		}
		n, after := walkAll(t, large[name](), many/10)
		if n != many {
			t.Errorf("%s: %d records", name, n)
		}
		const digests, spare = 16 * (1 << 17) * 3 / 2, 8 << 20
		if after > before+digests+spare {
			t.Errorf("%s: %d records take %d KiB, %d take %d KiB", name, few, before>>10, many, after>>10)
		}
		t.Logf("%s: %d KiB, %d KiB", name, before>>10, after>>10)
	}
}

// resident is the most memory that the process had; 0 where that is not told.
func resident() (mib float64) {
	status, _ := os.ReadFile("/proc/self/status")
	if _, after, ok := bytes.Cut(status, []byte("VmHWM:")); ok {
		_, _ = fmt.Sscanf(string(after), "%f", &mib)
	}
	return mib / 1024
}

// BenchmarkMillion reads a million records; rows/s, and the resident memory at its
// highest, which is that of the whole test binary.
func BenchmarkMillion(b *testing.B) {
	const n = 1_000_000
	all := readers(b, n)
	u, _ := database(b, fmt.Sprintf(`CREATE TABLE m AS SELECT 'objects/' || lpad(i::text, 12, '0') AS key, i AS size, 'sha256:' || lpad(i::text, 64, '0') AS checksum FROM generate_series(1, %d) i; CREATE INDEX ON m (key COLLATE "C"); ANALYZE m`, n))
	all["postgres"] = func() Reader { return mustPostgres(b, u, "SELECT * FROM m", Options{}) }
	for name, reader := range all {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				debug.FreeOSMemory()
				// On Linux this begins the record of resident memory anew.
				_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
				start := time.Now()
				if got, _ := walkAll(b, reader(), 0); got != n {
					b.Fatalf("%d records", got)
				}
				b.ReportMetric(n/time.Since(start).Seconds(), "rows/s")
				b.ReportMetric(resident(), "MiB-resident")
			}
		})
	}
}
