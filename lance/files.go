package lance

import (
	"iter"
	"strings"
)

// Kind is what a file is to its dataset. The zero value is no kind.
type Kind uint8

// The kinds of files.
const (
	KindData Kind = iota + 1
	KindDeletion
	KindOverlay
	KindRowIDs
	KindIndex
	KindTransaction
)

// String is a word for messages.
func (k Kind) String() string {
	if k > KindTransaction {
		k = 0
	}
	return [...]string{"", "data", "deletion", "overlay", "row_ids", "index", "transaction"}[k]
}

// Folders of a dataset; the names of files in them are recorded without.
const (
	dataDir         = "data/"
	deletionsDir    = "_deletions/"
	indicesDir      = "_indices/"
	transactionsDir = "_transactions/"
)

// File is one object that a manifest names.
type File struct {
	Kind Kind
	// Path below the dataset root, or below the base path when HasBase, as the
	// format means it: "data/x.lance", "_deletions/0-1-7.arrow",
	// "_indices/{uuid}/index.idx"; "x.lance" or "{uuid}/index.idx" below a base
	// that is no dataset root. When the manifest lacks the base id (see
	// Manifest.Base) it is written as below a dataset root.
	Path    string
	BaseID  uint32
	HasBase bool
	// Size in bytes; 0 when not recorded, or not reliably (data files of format 0.1).
	Size int64
	// MinSize is the fewest bytes that the whole object can have.
	MinSize int64
	// FragmentID is set when HasFragment. For a file of several fragments it is the
	// first one in the list.
	FragmentID  uint64
	HasFragment bool
	// PhysicalRows and LiveRows of the fragment; -1 when unknown or without one.
	PhysicalRows, LiveRows int64
	// IndexUUID and IndexName are set for KindIndex.
	IndexUUID, IndexName string
	// Dead marks a data file whose columns are all tombstones: its loss harms nobody.
	Dead bool
	// FragmentFiles is how many live data files the fragment has.
	FragmentFiles int
}

// fileKey is the identity of an object.
type fileKey struct {
	path    string
	base    uint32
	hasBase bool
}

// Files streams every object that the manifest names, each once: the transaction
// file, then fragment by fragment its data files, overlays, deletion file and
// external row sequences, then the recorded files of indices. An index whose
// files are not recorded (Index.Files is empty) yields none; see Index.Signature.
// Blob sidecars and the MemWAL are not named by a manifest.
//
// It allocates the path of each file and nothing else that grows with the table,
// unless some object is named twice.
func (m *Manifest) Files() iter.Seq2[File, error] {
	return func(yield func(File, error) bool) {
		w := fileWalk{m: m, yield: yield}
		if m.repeatedPaths {
			w.seen = map[fileKey]struct{}{}
		}
		if m.TransactionFile != "" {
			path := transactionsDir + m.TransactionFile
			if !w.emit(File{Kind: KindTransaction, Path: path, MinSize: 1, PhysicalRows: -1, LiveRows: -1}) {
				return
			}
		}
		for f, err := range m.walk(false) {
			if err != nil {
				yield(File{}, err)
				return
			}
			if !w.fragment(f) {
				return
			}
		}
		if w.seen == nil {
			w.seen = map[fileKey]struct{}{}
		}
		for x, err := range m.Indices() {
			if err != nil {
				yield(File{}, err)
				return
			}
			if !w.index(x) {
				return
			}
		}
	}
}

// fileWalk yields files until the caller wants no more.
type fileWalk struct {
	m     *Manifest
	yield func(File, error) bool
	seen  map[fileKey]struct{} // nil while no object is named twice
	buf   []byte
}

func (w *fileWalk) emit(f File) bool {
	if w.seen != nil {
		k := fileKey{f.Path, f.BaseID, f.HasBase}
		if _, twice := w.seen[k]; twice {
			return true
		}
		w.seen[k] = struct{}{}
	}
	return w.yield(f, nil)
}

// folder is the folder of files of one kind: empty below a base that is no dataset root.
func (w *fileWalk) folder(name string, base uint32, hasBase bool) string {
	if b, ok := w.m.Base(base); hasBase && ok && !b.IsDatasetRoot {
		return ""
	}
	return name
}

func (w *fileWalk) fragment(f *Fragment) bool {
	of := File{FragmentID: f.ID, HasFragment: true, PhysicalRows: -1, LiveRows: -1, FragmentFiles: f.LiveFiles()}
	if f.PhysicalRows > 0 {
		of.PhysicalRows = f.PhysicalRows
	}
	if live, known := f.LiveRows(); known {
		of.LiveRows = live
	}
	for i := range f.Files {
		if !w.dataFile(of, KindData, &f.Files[i]) {
			return false
		}
	}
	for i := range f.Overlays {
		if !w.dataFile(of, KindOverlay, &f.Overlays[i]) {
			return false
		}
	}
	if d := f.Deletion; d != nil {
		file := of
		file.Kind, file.BaseID, file.HasBase = KindDeletion, d.BaseID, d.HasBase
		w.buf = d.appendName(append(w.buf[:0], deletionsDir...), f.ID)
		file.Path = string(w.buf)
		file.MinSize = minArrowFile
		if d.Bitmap {
			file.MinSize = minRoaring
		}
		if !w.emit(file) {
			return false
		}
	}
	for _, x := range f.External {
		file := of
		file.Kind, file.Path, file.MinSize = KindRowIDs, x.Path, x.Offset+x.Size
		if !w.emit(file) {
			return false
		}
	}
	return true
}

func (w *fileWalk) dataFile(file File, kind Kind, d *DataFile) bool {
	file.Kind, file.BaseID, file.HasBase, file.Size, file.Dead = kind, d.BaseID, d.HasBase, d.Size, d.Dead
	w.buf = append(append(w.buf[:0], w.folder(dataDir, d.BaseID, d.HasBase)...), d.path...)
	file.Path = string(w.buf)
	file.MinSize = minLanceFile
	if d.Legacy() {
		// What is recorded is a lower bound only, see DataFile.Size.
		file.Size, file.MinSize = 0, max(d.Size, minLegacyFile)
	}
	return w.emit(file)
}

func (w *fileWalk) index(x Index) bool {
	dir := w.folder(indicesDir, x.BaseID, x.HasBase) + x.UUID + "/"
	of := File{Kind: KindIndex, BaseID: x.BaseID, HasBase: x.HasBase, PhysicalRows: -1, LiveRows: -1,
		IndexUUID: x.UUID, IndexName: x.Name}
	for _, r := range x.Files {
		file := of
		file.Path, file.Size, file.MinSize = dir+r.Path, r.Size, MinFileSize(KindIndex, r.Path)
		if !w.emit(file) {
			return false
		}
	}
	if x.external != nil {
		file := of
		file.Path, file.MinSize = dir+x.external.Path, x.external.Offset+x.external.Size
		return w.emit(file)
	}
	return true
}

// MinFileSize is the fewest bytes that a whole file of this kind and name can
// have, whatever is in it; 0 when its format says nothing.
func MinFileSize(kind Kind, name string) int64 {
	switch {
	case strings.HasSuffix(name, ".lance"), strings.HasSuffix(name, ".idx"):
		return minLegacyFile
	case kind == KindDeletion && strings.HasSuffix(name, ".arrow"):
		return minArrowFile
	case kind == KindDeletion && strings.HasSuffix(name, ".bin"):
		return minRoaring
	case kind == KindTransaction:
		return 1 // a transaction without an operation is none
	}
	return 0
}
