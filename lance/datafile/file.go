package datafile

import (
	"context"
	"iter"
)

// Reader gives bytes of one file.
type Reader interface {
	// ReadAt gives exactly n bytes from offset off, or an error.
	ReadAt(ctx context.Context, off, n int64) ([]byte, error)
}

// File is an open data file.
type File struct {
	// Rows is how many rows the file holds, deleted ones included.
	Rows int64
	// Major and Minor are the format version; what the footer calls 0.3 is 2.0.
	Major, Minor uint16

	fields []*Field
}

// Open reads footer, column metadata and schema of a file of size bytes.
func Open(ctx context.Context, r Reader, size int64) (*File, error) {
	return nil, unsupported("everything")
}

// Fields gives the top-level fields of the file's own schema.
func (f *File) Fields() []*Field { return f.fields }

// Field finds a field at any depth by its id; nil when the file has none such.
func (f *File) Field(id int32) *Field { return nil }

// Read streams fields in batches of at most 64 Ki rows.
func (f *File) Read(ctx context.Context, fields []*Field) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) { yield(nil, unsupported("everything")) }
}

// Batch is some consecutive rows.
type Batch struct {
	FirstRow int64 // position of the first row in the file
	Rows     int
	Columns  []*Array // one a field that was asked for, in that order
}
