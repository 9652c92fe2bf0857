package lance

import (
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

// CheckDeletionFile says whether the whole bytes of a deletion file are of the
// format that its name promises: an Arrow IPC file (".arrow"; its frame is
// checked, not its columns), or a portable 32-bit Roaring bitmap (".bin"; checked
// to its end). The error is a *CorruptError.
func CheckDeletionFile(name string, whole []byte) error {
	var err error
	if _, _, _, bitmap, nameErr := ParseDeletionName(name); nameErr != nil {
		return nameErr
	} else if bitmap {
		err = checkRoaring(whole)
	} else {
		err = checkArrowFile(whole)
	}
	if err != nil {
		return &CorruptError{Name: printable(name), Reason: err.Error()}
	}
	return nil
}
