package report

import (
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

const (
	// rowGroupRows is DuckDB's own row group: one thread reads one, and a writer
	// holds no more than one in memory.
	rowGroupRows = 122_880
	// bloomBits per value of url give about 1 % false positives.
	bloomBits = 10
	// chunkRows are converted at once; more does not make it faster.
	chunkRows = 512
)

// reportFile is a table without its row type.
type reportFile interface {
	name() string
	// finish ends the file and gives its bytes. They cannot be closed by who reads
	// them, as HTTP clients do with bodies.
	finish() (*io.SectionReader, error)
	close()
}

// table is one Parquet file that grows on disk.
type table[T any] struct {
	kind string
	file *os.File
	w    *parquet.GenericWriter[T]
	buf  []T
	rows int64
}

func newTable[T any](dir, kind string) (*table[T], error) {
	f, err := os.OpenFile(filepath.Join(dir, kind+".parquet"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &table[T]{kind: kind, file: f, w: parquet.NewGenericWriter[T](f, writerOptions[T](kind)...)}, nil
}

func writerOptions[T any](kind string) []parquet.WriterOption {
	var zero T
	// Named by the report; left alone, the file would show the name of a Go type.
	schema := parquet.NewSchema(kind, parquet.SchemaOf(zero))
	opts := []parquet.WriterOption{
		schema,
		parquet.Compression(&zstd.Codec{Level: zstd.SpeedFastest}),
		parquet.MaxRowsPerRowGroup(rowGroupRows),
		parquet.DataPageStatistics(true),
	}
	if _, ok := schema.Lookup("url"); ok {
		opts = append(opts, parquet.BloomFilters(parquet.SplitBlockFilter(bloomBits, "url")))
	}
	return opts
}

func (t *table[T]) write(rows ...T) error {
	n, err := t.w.Write(rows)
	t.rows += int64(n)
	return err
}

// writeRows converts and writes in chunks, so that a long slice of the caller does
// not exist a second time.
func writeRows[T, S any](t *table[T], items []S, row func(S) T) error {
	for chunk := range slices.Chunk(items, chunkRows) {
		t.buf = t.buf[:0]
		for _, it := range chunk {
			t.buf = append(t.buf, row(it))
		}
		if err := t.write(t.buf...); err != nil {
			return err
		}
	}
	clear(t.buf)
	return nil
}

func (t *table[T]) name() string { return t.kind }

func (t *table[T]) finish() (*io.SectionReader, error) {
	if err := t.w.Close(); err != nil {
		return nil, err
	}
	size, err := t.file.Seek(0, io.SeekEnd)
	return io.NewSectionReader(t.file, 0, size), err
}

// close lets go of the file, which is then thrown away: its error says nothing.
func (t *table[T]) close() { _ = t.file.Close() }
