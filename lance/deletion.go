package lance

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// DeletionFile is the deletion file of a fragment.
type DeletionFile struct {
	// Name is "{fragment}-{read version}-{id}.arrow", or ".bin" for a Bitmap.
	Name            string
	Bitmap          bool
	ReadVersion, ID uint64
	// NumDeleted rows; 0 when not recorded.
	NumDeleted int64
	BaseID     uint32
	HasBase    bool
}

// parse reads a DeletionFile message of fragment id; Name is left empty.
func (d *DeletionFile) parse(b []byte) error {
	for len(b) > 0 {
		var f wireField
		var err error
		if f, b, err = cutField(b); err != nil {
			return err
		}
		switch f.num {
		case 1:
			if err = f.is(protowire.VarintType); err == nil && f.v > 1 {
				err = corrupt("deletion file of unknown type %d", f.v)
			}
			d.Bitmap = f.v == 1
		case 2:
			err = f.uint64(&d.ReadVersion)
		case 3:
			err = f.uint64(&d.ID)
		case 4:
			err = f.count(&d.NumDeleted, "number of deleted rows")
		case 7:
			d.HasBase = true
			err = f.uint32(&d.BaseID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// appendName writes the file's name in the deletion folder.
func (d *DeletionFile) appendName(dst []byte, fragment uint64) []byte {
	dst = strconv.AppendUint(dst, fragment, 10)
	dst = append(dst, '-')
	dst = strconv.AppendUint(dst, d.ReadVersion, 10)
	dst = append(dst, '-')
	dst = strconv.AppendUint(dst, d.ID, 10)
	if d.Bitmap {
		return append(dst, ".bin"...)
	}
	return append(dst, ".arrow"...)
}

// ParseDeletionName reads the name of a deletion file, with or without the
// folder "_deletions/". The error is a *CorruptError.
func ParseDeletionName(name string) (fragment, readVersion, id uint64, bitmap bool, err error) {
	stem, bitmap := strings.CutSuffix(strings.TrimPrefix(name, deletionsDir), ".bin")
	ok := bitmap
	if !ok {
		stem, ok = strings.CutSuffix(stem, ".arrow")
	}
	var n [3]uint64
	for i := range n {
		var part string
		var more bool
		part, stem, more = strings.Cut(stem, "-")
		v, err := strconv.ParseUint(part, 10, 64)
		ok = ok && err == nil && more == (i < 2) && (part == "0" || part[0] != '0')
		n[i] = v
		if !ok {
			return 0, 0, 0, false, &CorruptError{Name: printable(name), Reason: "not the name of a deletion file"}
		}
	}
	return n[0], n[1], n[2], bitmap, nil
}

// printable is a name as an error text may show it.
func printable(name string) string {
	if len(name) > 200 {
		name = name[:200] + "…"
	}
	if !utf8.ValidString(name) {
		return strconv.QuoteToASCII(name)
	}
	return name
}

// Deletions are the deleted rows of a fragment: offsets into its physical rows. It
// is immutable and safe for concurrent use. It holds on to the bytes that it was
// decoded from when they are a bitmap, so that a run of millions costs four bytes.
type Deletions struct {
	n      int
	sorted []uint32    // of an Arrow file
	runs   []container // of a bitmap
}

// Len is the number of deleted rows; of nil it is 0.
func (d *Deletions) Len() int {
	if d == nil {
		return 0
	}
	return d.n
}

// Has reports whether the row at a physical offset is deleted; nil has none.
func (d *Deletions) Has(offset uint32) bool {
	if d == nil {
		return false
	}
	if d.runs != nil {
		return containersHave(d.runs, offset)
	}
	_, found := slices.BinarySearch(d.sorted, offset)
	return found
}

// All yields the offsets in ascending order, each once.
func (d *Deletions) All() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		if d == nil {
			return
		}
		for _, v := range d.sorted {
			if !yield(v) {
				return
			}
		}
		for i := range d.runs {
			if !d.runs[i].each(yield) {
				return
			}
		}
	}
}

// DecodeDeletionFile reads the whole bytes of a deletion file by what its name
// promises: an Arrow IPC file of one uint32 column (".arrow", in any order, as the
// library writes it), or a portable 32-bit Roaring bitmap (".bin"), which must then
// not be changed. The error is a *CorruptError, or matches ErrUnknownFormat when the
// Arrow file is compressed in another way than the library does.
func DecodeDeletionFile(name string, whole []byte) (*Deletions, error) {
	_, _, _, bitmap, err := ParseDeletionName(name)
	if err != nil {
		return nil, err
	}
	d := &Deletions{}
	if bitmap {
		d.runs, err = parseRoaring(whole)
		for i := range d.runs {
			d.n += d.runs[i].card
		}
	} else if d.sorted, err = arrowOffsets(whole); err == nil {
		slices.Sort(d.sorted)
		d.sorted = slices.Compact(d.sorted)
		d.n = len(d.sorted)
	}
	switch {
	case errors.Is(err, ErrUnknownFormat):
		return nil, fmt.Errorf("%s: %w", printable(name), err)
	case err != nil:
		return nil, &CorruptError{Name: printable(name), Reason: err.Error()}
	}
	return d, nil
}

// CheckDeletionFile says whether the whole bytes of a deletion file can be read as
// what its name promises, see [DecodeDeletionFile]; what that does not know is not
// held against the file. The error is a *CorruptError.
func CheckDeletionFile(name string, whole []byte) error {
	_, err := DecodeDeletionFile(name, whole)
	if errors.Is(err, ErrUnknownFormat) {
		return nil
	}
	return err
}
