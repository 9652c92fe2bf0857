package lance

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/rocketkeep/reconcile/lance/datafile"
)

// Sidecar is one object beside a data file that holds values of a blob v2 column.
// No manifest names it: the descriptors in the column do.
type Sidecar struct {
	FragmentID uint64
	// File is the data file, and Path the sidecar, both below the dataset root, or
	// below the base path when HasBase, as in [File].
	File, Path string
	BaseID     uint32
	HasBase    bool
	// Column is the name of the first column with values in it.
	Column string
	// BlobID is the sidecar's number among those of its data file.
	BlobID uint32
	// Dedicated: it holds one value, and is as large. Else it holds many.
	Dedicated bool
	// Size in bytes where it is known: that of the value of a dedicated one, unless
	// rows disagree; else 0.
	Size int64
	// MinSize is the fewest bytes that it can have: where the last value ends that
	// some row has in it.
	MinSize int64
	// Rows have a value in it; LiveRows of them are not deleted.
	Rows, LiveRows int64
}

// Harmless reports whether only deleted rows have values in the sidecar, so that
// its loss harms nobody.
func (s *Sidecar) Harmless() bool { return s.LiveRows == 0 }

// BlobCounts counts rows by where the values of blob v2 columns lie; deleted rows
// are counted as well.
type BlobCounts struct {
	// Files are the data files that were walked to their end.
	Files int64
	// Inline values lie in the data file; Packed and Dedicated ones in sidecars;
	// External ones at a URI of their own, which no Sidecar stands for. Empty ones
	// have no bytes anywhere, and Nulls no value.
	Inline, Packed, Dedicated, External, Empty, Nulls int64
}

// SidecarError says that a data file could not be walked, so that its sidecars are
// not all told, or that a deletion file could not be read.
type SidecarError struct {
	// File is the data file or deletion file, as in [Sidecar].
	File string
	Err  error
}

// Error implements error.
func (e *SidecarError) Error() string { return fmt.Sprintf("sidecars of %s: %v", e.File, e.Err) }

// Unwrap gives Err, which matches what is told at [Manifest.Scan].
func (e *SidecarError) Unwrap() error { return e.Err }

// Kinds of a blob v2 descriptor (source: public documentation of Lance's blob
// columns, and tables written by npm release 0.39.0).
const (
	blobInline = iota
	blobPacked
	blobDedicated
	blobExternal
)

// Sidecars streams the sidecar objects of all blob v2 columns of the version, data
// file by data file, each once, by ascending number. Whether a field keeps its
// values so is said by the schema of each data file: an old writer stores the same
// field as an ordinary struct.
//
// It reads the blob columns of the data files that hold some, and keeps what it
// knows of one file's sidecars in memory. A data file that is lost or cannot be
// read yields a *SidecarError, and the walk goes on; what was found in that file
// before is not yielded. After a *SidecarError of a deletion file all rows of the
// fragment count as live. An error of another type, of the manifest or of ctx, ends
// the sequence. opts.Blobs counts values.
func (m *Manifest) Sidecars(ctx context.Context, s Store, opts ScanOptions) iter.Seq2[Sidecar, error] {
	return func(yield func(Sidecar, error) bool) {
		if err := m.CheckReaderFlags(); err != nil {
			yield(Sidecar{}, fmt.Errorf("sidecars of version %d: %w", m.Version, err))
			return
		}
		schema, err := m.schema()
		if err != nil {
			yield(Sidecar{}, fmt.Errorf("sidecars of version %d: %w", m.Version, err))
			return
		}
		w := sidecarWalk{places: &places{m: m, own: s, opts: opts}, blobs: schema.blobs(), counts: opts.Blobs, yield: yield}
		if w.counts == nil {
			w.counts = &BlobCounts{}
		}
		for f, err := range m.Fragments() {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(Sidecar{}, fmt.Errorf("sidecars of version %d: %w", m.Version, err))
				return
			}
			if !w.fragment(ctx, f) {
				return
			}
		}
	}
}

// blobs are the fields of the top level that may be blob columns.
func (s *schema) blobs() (list []*schemaField) {
	for _, f := range s.top {
		if f.LogicalType == "struct" && f.isBlob() {
			list = append(list, f)
		}
	}
	return list
}

type sidecarWalk struct {
	places *places
	blobs  []*schemaField
	counts *BlobCounts
	yield  func(Sidecar, error) bool
}

// fragment yields what is beside the data files of one fragment; false when no
// more is wanted.
func (w *sidecarWalk) fragment(ctx context.Context, f *Fragment) bool {
	var deleted *Deletions
	asked := false
	for i := range f.Files {
		d := &f.Files[i]
		fields := w.in(d)
		if len(fields) == 0 {
			continue
		}
		if !asked {
			asked = true
			var err error
			if deleted, err = w.places.deletions(ctx, f, f.PhysicalRows); err != nil {
				if !w.yield(Sidecar{}, &SidecarError{File: deletionsDir + f.Deletion.Name, Err: err}) {
					return false
				}
			}
		}
		found, name, err := w.file(ctx, f, d, fields, deleted)
		if err != nil {
			if !w.yield(Sidecar{}, &SidecarError{File: name, Err: err}) || ctx.Err() != nil {
				return false
			}
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(found)) {
			if !w.yield(*found[id], nil) {
				return false
			}
		}
	}
	return true
}

// in are the fields of which a data file may hold blobs.
func (w *sidecarWalk) in(d *DataFile) (fields []*schemaField) {
	if d.Dead || d.Major < 2 || d.Major == 2 && d.Minor < 2 {
		return nil // no format before 2.2 has sidecars
	}
	for _, f := range w.blobs {
		if f.holds(d.Fields) {
			fields = append(fields, f)
		}
	}
	return fields
}

// file finds the sidecars of one data file. name is what errors call the file.
func (w *sidecarWalk) file(ctx context.Context, f *Fragment, d *DataFile, fields []*schemaField, deleted *Deletions) (found map[uint32]*Sidecar, name string, err error) {
	file, name, err := w.places.openData(ctx, d)
	if err != nil {
		return nil, name, err
	}
	var read []*datafile.Field
	for _, f := range fields {
		t := target{name: f.Name, path: []*schemaField{f}}
		inFile, err := t.in(file, d)
		if err != nil {
			return nil, name, err
		}
		if inFile.Blob == datafile.BlobV2 {
			read = append(read, inFile)
		}
	}
	if len(read) == 0 {
		return nil, name, nil
	}
	var counts BlobCounts
	of := Sidecar{FragmentID: f.ID, File: name, BaseID: d.BaseID, HasBase: d.HasBase}
	found = map[uint32]*Sidecar{}
	for batch, err := range file.Read(ctx, read) {
		if err != nil {
			return nil, name, err
		}
		for c, values := range batch.Columns {
			of.Column = read[c].Name
			for i := range values.Len() {
				at := batch.FirstRow + int64(i)
				live := at > math.MaxUint32 || !deleted.Has(uint32(at))
				desc, ok := values.Descriptor(i)
				if !ok {
					return nil, name, corrupt("column %.80q has no descriptor in row %d", of.Column, at)
				}
				if err := of.count(found, &counts, desc, live); err != nil {
					return nil, name, err
				}
			}
		}
	}
	counts.Files = 1
	w.counts.add(counts)
	return found, name, nil
}

func (c *BlobCounts) add(d BlobCounts) {
	c.Files += d.Files
	c.Inline += d.Inline
	c.Packed += d.Packed
	c.Dedicated += d.Dedicated
	c.External += d.External
	c.Empty += d.Empty
	c.Nulls += d.Nulls
}

// count adds one value; s says what all sidecars of the file have in common.
func (s Sidecar) count(found map[uint32]*Sidecar, counts *BlobCounts, d datafile.Descriptor, live bool) error {
	switch {
	case d.Null:
		counts.Nulls++
		return nil
	case d.Kind == blobExternal:
		counts.External++
		return nil
	case d.Kind == blobInline && d.Size == 0:
		counts.Empty++
		return nil
	case d.Kind == blobInline:
		counts.Inline++
		return nil
	case d.Kind > blobExternal:
		return &datafile.UnsupportedError{Column: s.Column, Page: -1, Encoding: fmt.Sprintf("a blob of kind %d", d.Kind)}
	case d.Position > math.MaxInt64 || d.Size > math.MaxInt64-d.Position:
		return corrupt("a value of column %.80q ends beyond any object (%d bytes at %d)", s.Column, d.Size, d.Position)
	}
	end := int64(d.Position + d.Size)
	x, seen := found[d.ID]
	if !seen {
		s.BlobID, s.Dedicated = d.ID, d.Kind == blobDedicated
		s.Path = strings.TrimSuffix(s.File, ".lance") + "/" + sidecarName(d.ID)
		if s.Dedicated {
			s.Size = end
		}
		x = &s
		found[d.ID] = x
	}
	if x.Dedicated != (d.Kind == blobDedicated) {
		return corrupt("sidecar %d holds both one value and many", d.ID)
	}
	if x.Dedicated {
		counts.Dedicated++
		if x.Size != end {
			x.Size = 0
		}
	} else {
		counts.Packed++
	}
	x.MinSize = max(x.MinSize, end)
	x.Rows++
	if live {
		x.LiveRows++
	}
	return nil
}

// sidecarName is the number's 32 binary digits, the lowest first: names that begin
// alike spread badly over the partitions of some stores.
func sidecarName(id uint32) string { return fmt.Sprintf("%032b.blob", bits.Reverse32(id)) }
