package lance

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/rocketkeep/reconcile/lance/datafile"
)

// ErrNoColumn: a name is not one of the schema's.
var ErrNoColumn = errors.New("no such column")

// ScanOptions are what reading values needs besides a store.
type ScanOptions struct {
	// Bases opens the place that a base path names; the store's names are then
	// relative to it. nil: a file below a base path is an error.
	Bases func(ctx context.Context, b BasePath) (Store, error)
	// Blobs, when not nil, is what Sidecars adds its counts to.
	Blobs *BlobCounts
}

// Rows are live rows of one fragment, in the order of the fragment.
type Rows struct {
	FragmentID uint64
	// Len is the number of rows; every column has as many values.
	Len int
	// Columns stand in the order in which they were asked for.
	Columns []*datafile.Array
	// Offsets are the places of the rows in the fragment, counted from 0 with the
	// deleted ones: what a deletion file names.
	Offsets []uint32
}

// scanBatch is how many rows are yielded at once where no data file says it.
const scanBatch = 1 << 16

// Scan reads columns of all live rows: fragment by fragment in the order of the
// manifest, deleted rows left out, in batches of at most some ten thousand rows,
// whose arrays are the caller's. A column is named by its name in this version, a
// child of a struct by both names with a dot between ("payload.uri"); a name with
// dots of its own comes first. Without columns only Len and Offsets are told.
//
// A column that no data file of a fragment holds (it was added later, or the rows
// were added without it) is null there. Data files are opened when their fragment's
// turn comes: one read of the end of each, then the pages of the columns alone.
//
// The first error ends the sequence. It names the object that it is about, and
// matches: ErrNoColumn for a name that the schema does not have; fs.ErrNotExist, as
// the store says it, for a lost file; datafile.ErrLegacy for files of format 0.1,
// which are not read; or it wraps a *datafile.UnsupportedError, a
// *datafile.CorruptError, a *CorruptError, a *FlagError (see CheckReaderFlags) or
// the store's own error.
func (m *Manifest) Scan(ctx context.Context, s Store, opts ScanOptions, columns ...string) iter.Seq2[*Rows, error] {
	return func(yield func(*Rows, error) bool) {
		if err := m.scan(ctx, s, opts, columns, func(r *Rows) bool { return yield(r, nil) }); err != nil {
			yield(nil, err)
		}
	}
}

func (m *Manifest) scan(ctx context.Context, s Store, opts ScanOptions, columns []string, yield func(*Rows) bool) error {
	if err := m.CheckReaderFlags(); err != nil {
		return fmt.Errorf("scan version %d: %w", m.Version, err)
	}
	schema, err := m.schema()
	if err != nil {
		return fmt.Errorf("scan version %d: %w", m.Version, err)
	}
	targets := make([]target, len(columns))
	for i, name := range columns {
		if targets[i], err = schema.find(name); err != nil {
			return fmt.Errorf("scan version %d: %w", m.Version, err)
		}
	}
	sc := &scanner{places: &places{m: m, own: s, opts: opts}, targets: targets}
	for f, err := range m.Fragments() {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("scan version %d: %w", m.Version, err)
		}
		more, err := sc.fragment(ctx, f, yield)
		if err != nil {
			return fmt.Errorf("scan fragment %d: %w", f.ID, err)
		}
		if !more {
			return nil
		}
	}
	return nil
}

// scanner reads the same columns of one fragment after the other.
type scanner struct {
	places  *places
	targets []target
}

// source is one data file of a fragment, as far as it is read.
type source struct {
	file    *DataFile
	name    string
	columns []int             // which of the columns asked for it holds
	fields  []*datafile.Field // and what each is in the file
	next    func() (*datafile.Batch, error, bool)
	batch   *datafile.Batch
	used    int // rows of batch that were passed on
}

// fragment yields the live rows of one fragment; more is false when no more are wanted.
func (sc *scanner) fragment(ctx context.Context, f *Fragment, yield func(*Rows) bool) (more bool, err error) {
	if len(f.Overlays) > 0 {
		return false, &datafile.UnsupportedError{Page: -1, Encoding: "overlays, which hold newer values of single cells"}
	}
	sources, err := sc.sources(f)
	if err != nil {
		return false, err
	}
	rows := f.PhysicalRows
	for _, src := range sources {
		file, err := sc.open(ctx, src, rows)
		if err != nil {
			return false, fmt.Errorf("%s: %w", src.name, err)
		}
		rows = file.Rows
		var stop func()
		src.next, stop = iter.Pull2(file.Read(ctx, src.fields))
		defer stop()
	}
	if rows > math.MaxUint32 {
		return false, corrupt("%d rows are more than a fragment can have", rows)
	}
	deleted, err := sc.places.deletions(ctx, f, rows)
	if err != nil {
		return false, err
	}
	return sc.rows(f.ID, sources, deleted, rows, yield)
}

// sources are the data files that must be read for the columns: each that holds
// some of them, or any when nothing else tells how many rows there are.
func (sc *scanner) sources(f *Fragment) (sources []*source, err error) {
	by := make([]*source, len(f.Files))
	for i, t := range sc.targets {
		at, err := t.holder(f)
		if err != nil {
			return nil, err
		}
		if at < 0 {
			continue
		}
		if by[at] == nil {
			by[at] = &source{file: &f.Files[at]}
		}
		by[at].columns = append(by[at].columns, i)
	}
	any := -1
	for i, src := range by {
		if src != nil {
			sources = append(sources, src)
		} else if any < 0 && !f.Files[i].Dead {
			any = i
		}
	}
	if len(sources) == 0 && f.PhysicalRows == 0 && any >= 0 {
		sources = append(sources, &source{file: &f.Files[any]})
	}
	return sources, nil
}

// open opens a data file, which must have as many rows as the fragment (0: any),
// and finds in it what was asked for.
func (sc *scanner) open(ctx context.Context, src *source, rows int64) (*datafile.File, error) {
	file, name, err := sc.places.openData(ctx, src.file)
	src.name = name
	if err != nil {
		return nil, err
	}
	if rows != 0 && file.Rows != rows {
		return nil, corrupt("it holds %d rows, the fragment has %d", file.Rows, rows)
	}
	for _, c := range src.columns {
		field, err := sc.targets[c].in(file, src.file)
		if err != nil {
			return nil, err
		}
		src.fields = append(src.fields, field)
	}
	return file, nil
}

// rows passes the rows of a fragment on, batch by batch. Data files cut their
// batches where they like, so that each is as long as the shortest rest.
func (sc *scanner) rows(id uint64, sources []*source, deleted *Deletions, rows int64, yield func(*Rows) bool) (more bool, err error) {
	for row := int64(0); row < rows; {
		n := int(min(rows-row, scanBatch))
		for _, src := range sources {
			if len(src.fields) == 0 {
				continue
			}
			have, err := src.fill(row)
			if err != nil {
				return false, fmt.Errorf("%s: %w", src.name, err)
			}
			n = min(n, have)
		}
		if r := sc.take(sources, deleted, row, n); r.Len > 0 {
			r.FragmentID = id
			if !yield(r) {
				return false, nil
			}
		}
		for _, src := range sources {
			src.used += n
		}
		row += int64(n)
	}
	return true, nil
}

// fill makes sure that the source has the values of a row, and of how many from
// there on.
func (src *source) fill(row int64) (have int, err error) {
	for src.batch == nil || src.used == src.batch.Rows {
		batch, err, ok := src.next()
		switch {
		case err != nil:
			return 0, err
		case !ok:
			return 0, corrupt("its columns end at row %d", row)
		case batch.FirstRow != row || len(batch.Columns) != len(src.fields):
			return 0, corrupt("its columns go on at row %d, not at %d", batch.FirstRow, row)
		}
		src.batch, src.used = batch, 0
	}
	return src.batch.Rows - src.used, nil
}

// take is what is alive of n rows from row on.
func (sc *scanner) take(sources []*source, deleted *Deletions, row int64, n int) *Rows {
	r := &Rows{Columns: make([]*datafile.Array, len(sc.targets)), Offsets: make([]uint32, 0, n)}
	for at := row; at < row+int64(n); at++ {
		if !deleted.Has(uint32(at)) {
			r.Offsets = append(r.Offsets, uint32(at))
		}
	}
	r.Len = len(r.Offsets)
	if r.Len == 0 {
		return r
	}
	for _, src := range sources {
		var keep []int // in the source's batch; nil when all of it is kept
		if len(src.fields) > 0 && (r.Len < n || n < src.batch.Rows) {
			keep = make([]int, r.Len)
			for i, o := range r.Offsets {
				keep[i] = src.used + int(int64(o)-row)
			}
		}
		for i, c := range src.columns {
			values := src.batch.Columns[i]
			if keep != nil {
				values = values.Take(keep)
			}
			r.Columns[c] = sc.targets[c].child(values)
		}
	}
	for c, t := range sc.targets {
		if r.Columns[c] == nil {
			r.Columns[c] = datafile.Nulls(t.field(), r.Len)
		}
	}
	return r
}
