package datafile

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
)

const (
	footerLen = 40
	// tailLen is what the first read brings; nearly always the whole metadata.
	tailLen = 64 << 10
	// maxMetadata is how much metadata of one file is believed.
	maxMetadata = 64 << 20
	magic       = "LANC"
)

// Reader gives bytes of one file.
type Reader interface {
	// ReadAt gives exactly n bytes from offset off, or an error.
	ReadAt(ctx context.Context, off, n int64) ([]byte, error)
}

// File is an open data file. It may be used by several goroutines at once when
// its Reader may.
type File struct {
	// Rows is how many rows the file holds, deleted ones included.
	Rows int64
	// Major and Minor are the format version; what the footer calls 0.3 is 2.0.
	Major, Minor uint16

	r       Reader
	size    int64
	tail    []byte // the last bytes of the file
	fields  []*Field
	byID    map[int32]*Field
	columns []span // ColumnMetadata messages
}

// span is a range of bytes of the file.
type span struct{ off, n int64 }

// Open reads footer, column metadata and schema of a file of size bytes: one read
// of the last 64 KiB, and more only when they are not all in there. A file of
// format 0.1 gives [ErrLegacy], one of an unknown format an *[UnsupportedError],
// anything that cannot be a whole data file a *[CorruptError].
func Open(ctx context.Context, r Reader, size int64) (*File, error) {
	f := &File{r: r, size: size, byID: map[int32]*Field{}}
	if size < 16 {
		return nil, corrupt("%d bytes are too few", size)
	}
	tail, err := readExactly(ctx, r, span{size - min(size, tailLen), min(size, tailLen)})
	if err != nil {
		return nil, fmt.Errorf("read footer: %w", err)
	}
	f.tail = tail
	foot := tail[len(tail)-min(len(tail), footerLen):]
	if string(foot[len(foot)-4:]) != magic {
		return nil, corrupt("it does not end in %q", magic)
	}
	if err := f.version(foot); err != nil {
		return nil, err
	}
	if len(foot) < footerLen {
		return nil, corrupt("%d bytes are too few", size)
	}
	if err := f.metadata(ctx, foot); err != nil {
		return nil, err
	}
	numberColumns(f.fields, f.Minor == 0, 0)
	f.index(f.fields)
	return f, nil
}

func (f *File) version(foot []byte) error {
	major, minor := binary.LittleEndian.Uint16(foot[len(foot)-8:]), binary.LittleEndian.Uint16(foot[len(foot)-6:])
	switch {
	case major == 0 && minor < 3:
		return ErrLegacy
	case major == 0 && minor == 3:
		f.Major, f.Minor = 2, 0
	case major == 2 && minor <= 3:
		f.Major, f.Minor = major, minor
	default:
		return unsupported("file version %d.%d", major, minor)
	}
	return nil
}

// metadata reads what the footer points at.
func (f *File) metadata(ctx context.Context, foot []byte) error {
	u64 := binary.LittleEndian.Uint64
	start, columns, globals := u64(foot), u64(foot[8:]), u64(foot[16:])
	nGlobals, nColumns := binary.LittleEndian.Uint32(foot[24:]), binary.LittleEndian.Uint32(foot[28:])
	if nGlobals == 0 {
		return corrupt("it has no global buffer, so no schema")
	}
	if start > uint64(f.size) {
		return corrupt("column metadata at %d lies outside the file", start)
	}
	if missing := f.size - int64(len(f.tail)) - int64(start); missing > 0 && missing < maxMetadata {
		head, err := readExactly(ctx, f.r, span{int64(start), missing})
		if err != nil {
			return fmt.Errorf("read column metadata: %w", err)
		}
		f.tail = append(head[:len(head):len(head)], f.tail...)
	}
	var err error
	if f.columns, err = f.table(ctx, "columns", columns, nColumns); err != nil {
		return err
	}
	buffers, err := f.table(ctx, "global buffers", globals, 1)
	if err != nil {
		return err
	}
	raw, err := f.read(ctx, buffers[0])
	if err != nil {
		return fmt.Errorf("read schema: %w", err)
	}
	descriptor, err := parse(raw)
	if err != nil {
		return err
	}
	rows := descriptor.uint(2)
	if rows > math.MaxInt64/2 {
		return corrupt("%d rows", rows)
	}
	f.Rows = int64(rows)
	f.fields, err = parseSchema(descriptor.bytes(1))
	return err
}

// table reads n pairs (offset, length) at pos.
func (f *File) table(ctx context.Context, what string, pos uint64, n uint32) ([]span, error) {
	if pos > uint64(f.size) || int64(n)*16 > f.size-int64(pos) {
		return nil, corrupt("the table of %d %s at %d lies outside the file", n, what, pos)
	}
	raw, err := f.read(ctx, span{int64(pos), int64(n) * 16})
	if err != nil {
		return nil, fmt.Errorf("read table of %s: %w", what, err)
	}
	out := make([]span, n)
	for i := range out {
		off, l := binary.LittleEndian.Uint64(raw[16*i:]), binary.LittleEndian.Uint64(raw[16*i+8:])
		if off > uint64(f.size) || l > uint64(f.size)-off {
			return nil, corrupt("one of the %s lies outside the file", what)
		}
		out[i] = span{int64(off), int64(l)}
	}
	return out, nil
}

// read gives some bytes of metadata, from the tail when it holds them.
func (f *File) read(ctx context.Context, s span) ([]byte, error) {
	if s.n > maxMetadata {
		return nil, corrupt("metadata of %d bytes", s.n)
	}
	if b, ok := f.cached(s); ok {
		return b, nil
	}
	return readExactly(ctx, f.r, s)
}

// cached gives bytes of the tail.
func (f *File) cached(s span) ([]byte, bool) {
	at := s.off - (f.size - int64(len(f.tail)))
	if at < 0 {
		return nil, false
	}
	return f.tail[at : at+s.n : at+s.n], true
}

func readExactly(ctx context.Context, r Reader, s span) ([]byte, error) {
	if s.n == 0 {
		return nil, nil
	}
	b, err := r.ReadAt(ctx, s.off, s.n)
	if err != nil {
		return nil, err
	}
	if int64(len(b)) != s.n {
		return nil, fmt.Errorf("%d bytes at %d instead of %d", len(b), s.off, s.n)
	}
	return b, nil
}

func (f *File) index(fields []*Field) {
	for _, field := range fields {
		if field.ID >= 0 {
			f.byID[field.ID] = field
		}
		f.index(field.Children)
	}
}

// Fields gives the top-level fields of the file's own schema, children nested.
func (f *File) Fields() []*Field { return f.fields }

// Field finds a field of the file's own schema, at any depth, by its id; nil when
// the file has none such.
func (f *File) Field(id int32) *Field { return f.byID[id] }
