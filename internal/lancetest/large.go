package lancetest

import (
	"encoding/binary"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"time"
)

// Large is a generated table of many equal fragments with one data file each, for
// tests of memory and speed. Its manifest is made in one pass without a value per
// fragment, and its data files take no room: all names share a few sparse files.
type Large struct {
	// Fragments is their number, ids from 0.
	Fragments int
	// Rows of each fragment; 0 means 1000.
	Rows uint64
	// FileSize of each data file in bytes; 0 means 64 KiB. It is raised to the size
	// of a complete file (about 200 bytes), and by less than 64 bytes so that the
	// global buffer lies at a multiple of 64, which the real reader insists on.
	// Files tells the size that comes out.
	FileSize int64
	// DeletionEvery gives every n-th fragment a deletion file; 0 gives none.
	DeletionEvery int
}

func (l Large) rows() uint64 {
	if l.Rows == 0 {
		return 1000
	}
	return l.Rows
}

// tail is the end of each data file, from its first byte that is not a hole: a
// complete file whose addresses count the hole.
func (l Large) tail() (size int64, tail []byte) {
	const defaultSize = 64 << 10
	size = l.FileSize
	if size == 0 {
		size = defaultSize
	}
	need := int64(len(dataFileAt(0, l.rows(), []string{"id"}, []int32{0})))
	const alignment = 64
	size = max(size, need)
	size += (alignment - (size-need)%alignment) % alignment
	return size, dataFileAt(uint64(size-need), l.rows(), []string{"id"}, []int32{0})
}

// DataFile is the content of every data file: zeros, then a complete file of one
// constant column. Callers share it and must not change it.
func (l Large) DataFile() []byte {
	size, tail := l.tail()
	out := make([]byte, size)
	copy(out[size-int64(len(tail)):], tail)
	return out
}

// DeletionFile is the content of every deletion file: the first row is deleted.
func (l Large) DeletionFile() []byte { return DeletionArrow([]uint32{0}) }

// fileName has the length of a real one: 24 binary digits and 26 hex digits.
func (l Large) fileName(i int) string { return fmt.Sprintf("%024b%026x.lance", i, i) }

func (l Large) deletes(i int) bool { return l.DeletionEvery > 0 && i%l.DeletionEvery == 0 }

func (l Large) deletionName(i int) string { return fmt.Sprintf("%d-1-%d.arrow", i, 1<<40+i) }

// ManifestName is the path of the manifest (version 1, V2 naming) below the root.
func (l Large) ManifestName() string { return "_versions/" + V2.Name(1) }

// Manifest gives the bytes of the manifest file.
func (l Large) Manifest() []byte {
	size, _ := l.tail()
	const perFragment = 110
	out := make([]byte, 4, 4+l.Fragments*perFragment)
	out = appendBytes(out, 1, encodeField(schemaField{"id", "int32"}, 0))
	var flags uint64
	for i := range l.Fragments {
		file := encodeFile(File{Path: l.fileName(i), Fields: []int32{0}, Major: 2, Minor: 2}, size)
		f := appendBytes(appendUint(nil, 1, uint64(i)), 2, file)
		if l.deletes(i) {
			flags = 1
			f = appendBytes(f, 3, appendUint(appendUint(appendUint(nil, 2, 1), 3, uint64(1<<40+i)), 4, 1))
		}
		out = appendBytes(out, 2, appendUint(f, 4, l.rows()))
	}
	out = appendUint(out, 3, 1)
	out = appendBytes(out, 7, appendUint(nil, 1, uint64(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC).Unix())))
	out = appendUint(appendUint(out, 9, flags), 10, flags)
	if l.Fragments > 0 {
		out = appendUintAlways(out, 11, uint64(l.Fragments-1))
	}
	out = appendBytes(out, 13, appendString(appendString(nil, 1, "lance"), 2, "12.0.0"))
	out = appendBytes(out, 15, appendString(appendString(nil, 1, "lance"), 2, "2.2"))
	binary.LittleEndian.PutUint32(out, uint32(len(out)-4))
	out = binary.LittleEndian.AppendUint64(out, 0)
	return append(out, 0, 0, 2, 0, 'L', 'A', 'N', 'C')
}

// Files yields the data and deletion files by path below the root, with their
// sizes, in fragment order.
func (l Large) Files() iter.Seq2[string, int64] {
	size, _ := l.tail()
	deletion := int64(len(l.DeletionFile()))
	return func(yield func(string, int64) bool) {
		for i := range l.Fragments {
			if !yield("data/"+l.fileName(i), size) {
				return
			}
			if l.deletes(i) && !yield("_deletions/"+l.deletionName(i), deletion) {
				return
			}
		}
	}
}

// WriteTo puts manifest, data and deletion files, by path below the root. All data
// files are one shared slice, as are all deletion files.
func (l Large) WriteTo(put func(name string, data []byte)) {
	put(l.ManifestName(), l.Manifest())
	data, deletion := l.DataFile(), l.DeletionFile()
	for i := range l.Fragments {
		put("data/"+l.fileName(i), data)
		if l.deletes(i) {
			put("_deletions/"+l.deletionName(i), deletion)
		}
	}
}

// WriteDir writes the table below root. Data files are sparse, and up to a
// thousand names are hard links to one file where the file system has links, so
// that a hundred thousand take seconds and hardly any room.
func (l Large) WriteDir(root string) error {
	if err := writeFile(filepath.Join(root, filepath.FromSlash(l.ManifestName())), l.Manifest()); err != nil {
		return err
	}
	size, tail := l.tail()
	sparse := func(name string) error {
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		if _, err := f.WriteAt(tail, size-int64(len(tail))); err != nil {
			_ = f.Close()
			return err
		}
		return f.Close()
	}
	if err := l.spread(filepath.Join(root, "data"), l.fileName, func(int) bool { return true }, sparse); err != nil {
		return err
	}
	if l.DeletionEvery == 0 {
		return nil
	}
	deletion := l.DeletionFile()
	return l.spread(filepath.Join(root, "_deletions"), l.deletionName, l.deletes,
		func(name string) error { return os.WriteFile(name, deletion, 0o644) })
}

// spread makes the files of all wanted fragments: one in a thousand by create, the
// others as links to it.
func (l Large) spread(dir string, name func(int) string, wanted func(int) bool, create func(string) error) error {
	// below every known limit of links to one file (NTFS: 1024)
	const links = 1000
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var first string
	n := 0
	for i := range l.Fragments {
		if !wanted(i) {
			continue
		}
		file := filepath.Join(dir, name(i))
		if n%links != 0 && os.Link(first, file) == nil {
			n++
			continue
		}
		if err := create(file); err != nil {
			return err
		}
		first, n = file, n+1
	}
	return nil
}

// SparseTable writes a [Large] table of that many fragments below dir, the rest by
// default.
func SparseTable(dir string, fragments int) error { return Large{Fragments: fragments}.WriteDir(dir) }
