package lance

import (
	"encoding/binary"
	"fmt"
)

const (
	// FooterLen is how many last bytes of a Lance file CheckLanceFooter needs at
	// least; the whole file when it is shorter. With more (64 KiB is what one read
	// brings anyway) it also checks the tables that the footer points at.
	FooterLen = 40

	// minLegacyFile is the frame of format 0.1 and the length of the message before it.
	minLegacyFile = 16 + 4
	// minLanceFile is the footer of format 2.x and one entry of the table of global
	// buffers, the first of which holds the schema.
	minLanceFile = 40 + 16
)

// CheckLanceFooter says whether a file of size bytes that ends in tail ends like
// a whole Lance file. It knows data files, overlays, and the .lance and .idx
// files of indices, in the formats 0.1 and 2.0 to 2.3:
//
//	0.1   … u32 length | metadata | u64 offset of the length | u16 0 | u16 0..2 | "LANC"
//	2.x   … u64 column metadata | u64 table of it | u64 table of global buffers
//	      | u32 global buffers | u32 columns | u16 major | u16 minor | "LANC"
//
// (format 2.0 says 0.3.) The error is a *CorruptError when the bytes cannot be the
// end of a whole file; it matches ErrUnknownFormat when the magic is right and the
// version is not one of these; any other error is a misuse.
func CheckLanceFooter(tail []byte, size int64) error {
	n := int64(len(tail))
	if n > size || n < min(size, FooterLen) {
		return fmt.Errorf("check footer: %d bytes of a file of %d", n, size)
	}
	switch {
	case size == 0:
		return corrupt("empty file")
	case size < minLegacyFile:
		return corrupt("%d bytes are too few", size)
	case string(tail[n-4:]) != magic:
		return corrupt("it does not end in %q", magic)
	}
	major, minor := binary.LittleEndian.Uint16(tail[n-8:]), binary.LittleEndian.Uint16(tail[n-6:])
	switch {
	case major == 0 && minor < 3:
		return checkLegacyFooter(tail, size)
	case major == 0 && minor == 3, major == 2 && minor <= 3:
		return checkFooter(tail, size)
	}
	return fmt.Errorf("file version %d.%d: %w", major, minor, ErrUnknownFormat)
}

func checkLegacyFooter(tail []byte, size int64) error {
	n := int64(len(tail))
	pos := binary.LittleEndian.Uint64(tail[n-16:])
	end := uint64(size - 16)
	if pos > end-4 {
		return corrupt("metadata at %d lies outside the file", pos)
	}
	if at := int64(pos) - (size - n); at >= 0 {
		if l := uint64(binary.LittleEndian.Uint32(tail[at:])); l > end-pos-4 {
			return corrupt("metadata of %d bytes runs past its end", l)
		}
	}
	return nil
}

func checkFooter(tail []byte, size int64) error {
	if size < minLanceFile {
		return corrupt("%d bytes are too few", size)
	}
	foot := tail[len(tail)-40:]
	start := binary.LittleEndian.Uint64(foot)
	columns := binary.LittleEndian.Uint64(foot[8:])
	globals := binary.LittleEndian.Uint64(foot[16:])
	nGlobals := binary.LittleEndian.Uint32(foot[24:])
	nColumns := binary.LittleEndian.Uint32(foot[28:])
	if start > uint64(size-40) {
		return corrupt("column metadata at %d lies outside the file", start)
	}
	if nGlobals == 0 {
		return corrupt("it has no global buffer, so no schema")
	}
	if err := checkTable("columns", columns, nColumns, tail, size); err != nil {
		return err
	}
	return checkTable("global buffers", globals, nGlobals, tail, size)
}

// checkTable holds a table of n pairs (offset, length) against the file, and the
// pairs too as far as they lie in tail.
func checkTable(what string, pos uint64, n uint32, tail []byte, size int64) error {
	end := uint64(size - 40)
	if pos > end || end-pos < 16*uint64(n) {
		return corrupt("the table of %d %s at %d lies outside the file", n, what, pos)
	}
	at := int64(pos) - (size - int64(len(tail)))
	if at < 0 {
		return nil
	}
	for ; n > 0; n-- {
		o, l := binary.LittleEndian.Uint64(tail[at:]), binary.LittleEndian.Uint64(tail[at+8:])
		if o > end || l > end-o {
			return corrupt("one of the %s lies outside the file", what)
		}
		at += 16
	}
	return nil
}
