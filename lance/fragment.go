package lance

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"
)

// tombstone is the field id of a column that a data file holds and nothing reads.
const tombstone = -2

// DataFile is one data file of a fragment.
type DataFile struct {
	// Path below data/, or directly below a base that is no dataset root.
	Path string
	// Fields are the ids of the fields whose values the file holds; -2 marks a
	// column that nothing reads any more. ColumnIndices belong to them by
	// position; files of format 0.1 have none.
	Fields, ColumnIndices []int32
	// Major and Minor are the format version; 0 and below 3 is format 0.1.
	Major, Minor uint32
	// Size in bytes as recorded; 0 when not. Of files of format 0.1 it can be too
	// low: Lance 0.39 records what it had written before the end of the file.
	Size int64
	// BaseID is a base path when HasBase (0 is a legal id), else the file lies
	// below the dataset's own root.
	BaseID  uint32
	HasBase bool
	// Dead reports that every column is a tombstone: nothing reads the file.
	Dead bool

	path []byte
	// names asks parse for Path, which costs an allocation.
	names bool
}

// Legacy reports whether the file is of format 0.1.
func (d *DataFile) Legacy() bool { return d.Major == 0 && d.Minor < 3 }

// parse reads a DataFile message, reusing the slices of d.
func (d *DataFile) parse(b []byte) error {
	*d = DataFile{Fields: d.Fields[:0], ColumnIndices: d.ColumnIndices[:0], names: d.names}
	live := 0
	for len(b) > 0 {
		var f wireField
		var err error
		if f, b, err = cutField(b); err != nil {
			return err
		}
		switch f.num {
		case 1:
			err = f.text(&d.path)
		case 2:
			err = f.varints(func(v uint64) {
				if int32(v) != tombstone {
					live++
				}
				d.Fields = append(d.Fields, int32(v))
			})
		case 3:
			err = f.varints(func(v uint64) { d.ColumnIndices = append(d.ColumnIndices, int32(v)) })
		case 4:
			err = f.uint32(&d.Major)
		case 5:
			err = f.uint32(&d.Minor)
		case 6:
			err = f.count(&d.Size, "file size")
		case 7:
			d.HasBase = true
			err = f.uint32(&d.BaseID)
		}
		if err != nil {
			return err
		}
	}
	d.Dead = len(d.Fields) > 0 && live == 0
	if err := checkPath(d.path); err != nil {
		return err
	}
	if d.names {
		d.Path = string(d.path)
	}
	return nil
}

// checkPath refuses names that cannot be those of a file in the folder they are
// said to be in, so that nothing outside a dataset is ever asked for.
func checkPath(p []byte) error {
	switch {
	case len(p) == 0:
		return corrupt("file without a name")
	case p[0] == '/':
		return corrupt("absolute file name %.80q", p)
	case bytes.IndexByte(p, 0) >= 0:
		return corrupt("file name with a NUL byte")
	}
	for part := range bytes.SplitSeq(p, []byte("/")) {
		if len(part) == 0 || string(part) == "." || string(part) == ".." {
			return corrupt("file name %.80q leaves its folder", p)
		}
	}
	return nil
}

// ExternalFile is a byte range of a file that is named relative to the dataset root.
type ExternalFile struct {
	Path string
	// Offset and Size of the range, in bytes.
	Offset, Size int64
}

func parseExternal(b []byte) (x ExternalFile, err error) {
	var path []byte
	err = fields(b, func(f wireField) error {
		switch f.num {
		case 1:
			return f.text(&path)
		case 2:
			return f.count(&x.Offset, "offset")
		case 3:
			return f.count(&x.Size, "size")
		}
		return nil
	})
	if err == nil {
		err = checkPath(path)
	}
	if err == nil && x.Offset+x.Size < 0 {
		err = corrupt("range of %.80q ends beyond any object", path)
	}
	x.Path = string(path)
	return x, err
}

// Fragment is a set of rows and the files that hold them.
type Fragment struct {
	// ID is unique within a version in tables of any recent writer; gaps are
	// normal, and the order of ids is not that of the list.
	ID uint64
	// Files hold the columns; each has all rows of the fragment.
	Files []DataFile
	// Deletion is nil when no row is deleted.
	Deletion *DeletionFile
	// PhysicalRows includes deleted rows; 0 when not recorded.
	PhysicalRows int64
	// Overlays are data files with newer values of single cells.
	Overlays []DataFile
	// External are the row id and row version sequences that are kept in files.
	External []ExternalFile
	// Raw is the DataFragment message. It is part of the manifest's own bytes and
	// must not be changed.
	Raw []byte

	deletion DeletionFile
	names    bool
}

// LiveRows is the number of rows that are not deleted; known is false when the
// writer did not record what it takes to tell.
func (f *Fragment) LiveRows() (rows int64, known bool) {
	if f.PhysicalRows == 0 {
		return 0, false
	}
	if f.Deletion == nil {
		return f.PhysicalRows, true
	}
	if f.Deletion.NumDeleted == 0 || f.Deletion.NumDeleted > f.PhysicalRows {
		return 0, false
	}
	return f.PhysicalRows - f.Deletion.NumDeleted, true
}

// LiveFiles is the number of data files that something reads.
func (f *Fragment) LiveFiles() int {
	n := 0
	for i := range f.Files {
		if !f.Files[i].Dead {
			n++
		}
	}
	return n
}

// addFile extends s by one element, keeping the slices of an earlier one that lay
// there. When there is no room it makes room for every field num of the fragment
// at once, so that one of many files costs no more than its files.
func (f *Fragment) addFile(s []DataFile, num protowire.Number) []DataFile {
	if len(s) == cap(s) {
		n := 0
		for range messages(f.Raw, num) {
			n++
		}
		grown := make([]DataFile, len(s), max(n, len(s)+1))
		copy(grown, s)
		s = grown
	}
	s = s[:len(s)+1]
	s[len(s)-1].names = f.names
	return s
}

// parse reads a DataFragment message into f, reusing what f holds.
func (f *Fragment) parse(b []byte) error {
	*f = Fragment{Files: f.Files[:0], Overlays: f.Overlays[:0], External: f.External[:0], Raw: b, names: f.names}
	for len(b) > 0 {
		var w wireField
		var err error
		if w, b, err = cutField(b); err != nil {
			return err
		}
		if err = f.set(w); err != nil {
			return err
		}
	}
	if f.names && f.Deletion != nil {
		var buf [72]byte
		f.Deletion.Name = string(f.Deletion.appendName(buf[:0], f.ID))
	}
	return nil
}

func (f *Fragment) set(w wireField) error {
	switch w.num {
	case 1:
		return w.uint64(&f.ID)
	case 4:
		return w.count(&f.PhysicalRows, "number of rows")
	case 2, 3, 6, 8, 10, 11:
		if err := w.is(protowire.BytesType); err != nil {
			return err
		}
	default:
		return nil
	}
	switch w.num {
	case 2:
		f.Files = f.addFile(f.Files, 2)
		return f.Files[len(f.Files)-1].parse(w.body)
	case 3:
		f.Deletion = &f.deletion
		return f.deletion.parse(w.body)
	case 11:
		return f.setOverlay(w.body)
	}
	x, err := parseExternal(w.body)
	f.External = append(f.External, x)
	return err
}

// setOverlay reads a DataOverlayFile, of which only the data file names an object.
func (f *Fragment) setOverlay(b []byte) error {
	named := false
	err := fields(b, func(w wireField) error {
		if w.num != 1 {
			return nil
		}
		if err := w.is(protowire.BytesType); err != nil {
			return err
		}
		if !named {
			named = true
			f.Overlays = f.addFile(f.Overlays, 11)
		}
		return f.Overlays[len(f.Overlays)-1].parse(w.body)
	})
	if err == nil && !named {
		err = corrupt("overlay without a data file")
	}
	return err
}
