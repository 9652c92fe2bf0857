package lance

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rocketkeep/reconcile/lance/datafile"
)

// FileCheck says what speaks for a file, besides that nothing speaks against it.
type FileCheck struct {
	// Size and Rows: what is recorded agrees.
	Size, Rows bool
	// Fields: all columns that the manifest says it holds are in it, and no others.
	Fields bool
	// Values: all of its pages were decoded.
	Values bool
	// Odd says in what the file is unlike those that known writers make, without
	// contradicting itself or the manifest; empty when it is in nothing.
	Odd string
}

// DataPath is where a data file lies, as [File] tells it.
func (m *Manifest) DataPath(d *DataFile) string {
	if b, ok := m.Base(d.BaseID); d.HasBase && ok && !b.IsDatasetRoot {
		return d.Path
	}
	return dataDir + d.Path
}

// CheckDataFile says whether a file of size bytes is the data file that the manifest
// records as d: its size, format version, rows (physicalRows of the fragment; 0 when
// not known, and for overlays), fields with their types and columns, and whatever
// [datafile.File.Check] finds in it, with all pages when values is set. A file of
// format 0.1 is held against its own tables instead.
//
// The error is a *CorruptError or *datafile.CorruptError that says what disagrees; it
// matches ErrUnknownFormat, or is a *datafile.UnsupportedError, when the file cannot be
// judged; any other error is r's or ctx's and says nothing about the file.
func (m *Manifest) CheckDataFile(ctx context.Context, r datafile.Reader, size int64, d *DataFile, physicalRows int64, values bool) (FileCheck, error) {
	var out FileCheck
	switch {
	case d.Size > 0 && !d.Legacy() && size != d.Size, d.Size > size:
		return out, corrupt("it has %d bytes, recorded are %d", size, d.Size)
	case d.Size > 0 && !d.Legacy():
		out.Size = true
	}
	major, minor, err := checkTail(ctx, r, size)
	if err != nil {
		return out, err
	}
	if is, want := formatOf(uint32(major), uint32(minor)), formatOf(d.Major, d.Minor); is != want {
		return out, corrupt("it is of format %s, recorded is %s", is, want)
	}
	if d.Legacy() {
		err := m.checkLegacy(ctx, r, size, d, physicalRows, values, &out)
		return out, err
	}
	f, err := datafile.Open(ctx, r, size)
	if err != nil {
		return out, err
	}
	if physicalRows > 0 && f.Rows != physicalRows {
		return out, corrupt("it has %d rows, recorded are %d", f.Rows, physicalRows)
	}
	out.Rows = physicalRows > 0
	if out.Odd, err = m.checkFields(ctx, f, d); err != nil {
		return out, err
	}
	// Values are only decoded once everything recorded agrees: what they can grow to
	// is then bounded by what is recorded.
	checked, err := f.Check(ctx, values)
	if err != nil {
		return out, err
	}
	if err := holdColumns(checked.Columns, d); err != nil {
		return out, err
	}
	out.Fields, out.Values, out.Odd = true, checked.Values, cmp.Or(out.Odd, checked.Odd)
	return out, nil
}

// CheckIndexFile says the same of a file of an index, a .lance or .idx file of which
// the manifest may record the size (0: it does not) and nothing else. Errors are as of
// [Manifest.CheckDataFile].
func CheckIndexFile(ctx context.Context, r datafile.Reader, size int64, recorded int64, name string, values bool) (FileCheck, error) {
	var out FileCheck
	if recorded > 0 && size != recorded {
		return out, corrupt("it has %d bytes, recorded are %d", size, recorded)
	}
	out.Size = recorded > 0
	major, minor, err := checkTail(ctx, r, size)
	if err != nil {
		return out, err
	}
	if formatOf(uint32(major), uint32(minor)) == legacyFormat {
		if path.Ext(name) != ".lance" {
			return out, nil // the old vector index has a message of its own in this frame
		}
		l, err := readLegacy(ctx, r, size)
		if err == nil {
			out.Odd, err = l.odd, l.check(ctx, r, size, values)
		}
		return out, err
	}
	f, err := datafile.Open(ctx, r, size)
	if err != nil {
		return out, err
	}
	checked, err := f.Check(ctx, values)
	out.Values, out.Odd = checked.Values, checked.Odd
	return out, err
}

// checkTail holds the end of a file against its format, and tells the version there.
func checkTail(ctx context.Context, r datafile.Reader, size int64) (major, minor uint16, err error) {
	n := min(size, tailLen)
	if n < minLegacyFile {
		return 0, 0, corrupt("%d bytes are too few", size)
	}
	tail, err := r.ReadAt(ctx, size-n, n)
	if err != nil {
		return 0, 0, fmt.Errorf("read footer: %w", err)
	}
	if err := CheckLanceFooter(tail, size); err != nil && !errors.Is(err, ErrUnknownFormat) {
		return 0, 0, err
	}
	return binary.LittleEndian.Uint16(tail[n-8:]), binary.LittleEndian.Uint16(tail[n-6:]), nil
}

const legacyFormat = "0.1"

// formatOf names a format version: 0.3 and 2.0 are the same one, and so are 0.0 to 0.2.
func formatOf(major, minor uint32) string {
	switch {
	case major == 0 && minor < 3:
		return legacyFormat
	case major == 0 && minor == 3:
		return "2.0"
	}
	return fmt.Sprintf("%d.%d", major, minor)
}

// checkFields looks for the fields that the manifest says are in the file, and holds
// their types against the manifest's where both are known for certain.
func (m *Manifest) checkFields(ctx context.Context, f *datafile.File, d *DataFile) (odd string, err error) {
	types := map[int32]Field{}
	for field, err := range m.Fields() {
		if err != nil {
			return "", err
		}
		types[field.ID] = field
	}
	for _, id := range d.Fields {
		if id == tombstone {
			continue
		}
		in := f.Field(id)
		if in == nil {
			return "", corrupt("its schema lacks the field %d, which the manifest says it holds", id)
		}
		want, ok := types[id]
		if !ok || in.Blob != datafile.NotBlob {
			continue // dropped since, or kept in another shape
		}
		if a, b := typeClass(in.LogicalType), typeClass(want.LogicalType); a != "" && b != "" && a != b {
			return "", corrupt("its field %d is a %.80q, and a %.80q in the manifest", id, in.LogicalType, want.LogicalType)
		}
	}
	raw, err := f.FieldMessages(ctx)
	if err != nil {
		return "", err
	}
	for _, b := range raw {
		var field Field
		if field.parse(b) == nil {
			odd = cmp.Or(odd, field.oddBeside(types[field.ID]))
		}
	}
	return odd, nil
}

// oddBeside says that a field in a file is all but the same as the manifest's. Files
// keep the very bytes that the manifest has, until a column is renamed or its metadata
// changed, which seldom is a change of one byte.
func (f Field) oddBeside(want Field) string {
	if len(f.Raw) != len(want.Raw) || f.hasDictionary() {
		return ""
	}
	n := 0
	for i, b := range f.Raw {
		if b != want.Raw[i] {
			n++
		}
	}
	if n != 1 {
		return ""
	}
	return fmt.Sprintf("its field %d differs from the manifest's in one byte", f.ID)
}

// hasDictionary: a message of format 0.1 says where in its own file the values of a
// dictionary lie.
func (f Field) hasDictionary() (has bool) {
	_ = fields(f.Raw, func(w wireField) error { // it was parsed before
		has = has || w.num == 8
		return nil
	})
	return has
}

// typeClass is what all spellings of a type have in common that one page can be read
// as; empty for a type that is not known well enough.
func typeClass(logical string) string {
	switch logical {
	case "int8", "uint8":
		return "8 bits"
	case "int16", "uint16", "halffloat":
		return "16 bits"
	case "int32", "uint32", "float":
		return "32 bits"
	case "int64", "uint64", "double":
		return "64 bits"
	case "string", "large_string", "binary", "large_binary", "json":
		return "bytes"
	case "bool":
		return logical
	}
	switch head, _, _ := strings.Cut(logical, ":"); head {
	case "date32", "time32":
		return "32 bits"
	case "date64", "time64", "timestamp", "duration":
		return "64 bits"
	case "fixed_size_list", "fixed_size_binary":
		return logical
	}
	return ""
}

// holdColumns holds the number of columns of a file against those that the manifest
// records.
func holdColumns(n int, d *DataFile) error {
	if len(d.ColumnIndices) == 0 {
		return nil
	}
	if len(d.ColumnIndices) != len(d.Fields) {
		return &datafile.UnsupportedError{Page: -1, Encoding: fmt.Sprintf("a manifest that records %d columns for %d fields", len(d.ColumnIndices), len(d.Fields))}
	}
	columns := slices.Clone(d.ColumnIndices)
	slices.Sort(columns)
	columns = slices.DeleteFunc(slices.Compact(columns), func(c int32) bool { return c < 0 })
	if len(columns) != n || n > 0 && int(columns[n-1]) != n-1 {
		return corrupt("it has %d columns, recorded are %d", n, len(columns))
	}
	return nil
}
