package lance

import (
	"context"
	"iter"
	"time"
)

// WriterVersion is who wrote a manifest; empty before 2023.
type WriterVersion struct {
	Library, Version, Prerelease, Build string
}

// BasePath is a further place where files of a dataset lie.
type BasePath struct {
	ID   uint32
	Name string
	// IsDatasetRoot: the files lie in data/, _deletions/ and _indices/ below Path,
	// else directly below it.
	IsDatasetRoot bool
	// Path is an absolute path or URI as its creator wrote it.
	Path string
}

// Manifest is one version of a dataset.
type Manifest struct {
	Version                  uint64
	ReaderFlags, WriterFlags uint64
	Timestamp                time.Time
	WriterVersion            WriterVersion
	// DataFormat is "0.1", "2.0", …; empty when not recorded.
	DataFormat string
	// MaxFragmentID is nil when never set.
	MaxFragmentID            *uint32
	NextRowID                uint64
	TransactionFile          string
	Branch                   string
	Tag                      string
	BasePaths                []BasePath
	Config, TableMetadata    map[string]string
	FooterMajor, FooterMinor uint16
}

// ReadManifest reads the manifest of an entry.
func ReadManifest(ctx context.Context, s Store, e VersionEntry) (*Manifest, error) { panic("todo") }

// Fragments streams the fragments. The Fragment is reused by the next iteration.
func (m *Manifest) Fragments() iter.Seq2[*Fragment, error] { panic("todo") }

// Indices streams the index entries.
func (m *Manifest) Indices() iter.Seq2[Index, error] { panic("todo") }

// Fields streams the schema.
func (m *Manifest) Fields() iter.Seq2[Field, error] { panic("todo") }

// Files streams every object that the manifest names, each once.
func (m *Manifest) Files() iter.Seq2[File, error] { panic("todo") }

// Base finds a base path by id; 0 is a legal id.
func (m *Manifest) Base(id uint32) (BasePath, bool) { panic("todo") }

// HasBlobV2 reports whether data files may have blob sidecars.
func (m *Manifest) HasBlobV2() bool { panic("todo") }

// HasMemWAL reports whether the table has a MemWAL.
func (m *Manifest) HasMemWAL() bool { panic("todo") }

// CheckReaderFlags says whether everything the manifest names can be enumerated.
func (m *Manifest) CheckReaderFlags() error { panic("todo") }

// CheckWriterFlags says whether a new version may be derived from this one.
func (m *Manifest) CheckWriterFlags() error { panic("todo") }

// InlineTransaction decodes the transaction inside the manifest file; false when there is none.
func (m *Manifest) InlineTransaction() (Transaction, bool, error) { panic("todo") }

// FlagError says which bits of which feature word are not understood.
type FlagError struct {
	// Word is "reader" or "writer".
	Word    string
	Unknown uint64
	// HalfSet: bit 256 is set in only one word.
	HalfSet bool
}

// Error implements error.
func (e *FlagError) Error() string { panic("todo") }

// DataFile is one data file of a fragment.
type DataFile struct {
	// Path below data/ (or directly below a base that is no dataset root).
	Path string
	// Fields are field ids; -2 is a tombstone.
	Fields, ColumnIndices []int32
	Major, Minor          uint32
	// Size in bytes; 0 when not recorded.
	Size    int64
	BaseID  uint32
	HasBase bool
	// Dead: all fields are tombstones; nothing reads the file.
	Dead bool
}

// DeletionFile is the deletion file of a fragment.
type DeletionFile struct {
	// Name is "{fragment}-{read version}-{id}.arrow" or ".bin".
	Name            string
	Bitmap          bool
	ReadVersion, ID uint64
	// NumDeleted rows; 0 when not recorded.
	NumDeleted int64
	BaseID     uint32
	HasBase    bool
}

// ExternalFile is a byte range of a file named relative to the dataset root.
type ExternalFile struct {
	Path         string
	Offset, Size uint64
}

// Fragment is one fragment.
type Fragment struct {
	ID       uint64
	Files    []DataFile
	Deletion *DeletionFile
	// PhysicalRows includes deleted rows; 0 when unknown.
	PhysicalRows int64
	Overlays     []DataFile
	External     []ExternalFile
	// Raw is the message.
	Raw []byte
}

// LiveRows is the rows that are not deleted.
func (f *Fragment) LiveRows() (rows int64, known bool) { panic("todo") }

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

// File is one object that a manifest names.
type File struct {
	Kind Kind
	// Path below the dataset root or base.
	Path    string
	BaseID  uint32
	HasBase bool
	// Size in bytes; 0 when not recorded.
	Size int64
	// MinSize is the fewest bytes a whole object of this format has.
	MinSize     int64
	FragmentID  uint64
	HasFragment bool
	// PhysicalRows and LiveRows of the fragment; -1 when unknown.
	PhysicalRows, LiveRows int64
	IndexUUID, IndexName   string
	Dead                   bool
	// FragmentFiles is how many live data files the fragment has.
	FragmentFiles int
}

// IndexFile is a recorded file of an index, relative to the index's folder.
type IndexFile struct {
	Path string
	Size int64
}

// Index is one index segment.
type Index struct {
	UUID, Name     string
	Fields         []int32
	DatasetVersion uint64
	Files          []IndexFile
	BaseID         uint32
	HasBase        bool
	DetailsType    string
	Details        []byte
	Version        *int32
	FragmentBitmap []byte
	Raw            []byte
}

// Signature tells which files an index without recorded files certainly has.
func (x Index) Signature(listed []string) (must []string, known bool) { panic("todo") }

// Field is one field of the schema.
type Field struct {
	ID, ParentID  int32
	Name          string
	LogicalType   string
	Nullable      bool
	ExtensionName string
	Metadata      map[string]string
}

// Tag is a named version.
type Tag struct {
	Name string
	// Branch is empty for main.
	Branch  string
	Version uint64
}

// Branch is a named line of versions.
type Branch struct {
	Name string
	// ParentBranch is empty for main.
	ParentBranch  string
	ParentVersion uint64
	// Root of the branch's dataset relative to the main root: "tree/dev".
	Root string
}

// Tags reads _refs/tags.
func Tags(ctx context.Context, s Store) ([]Tag, error) { panic("todo") }

// Branches reads _refs/branches.
func Branches(ctx context.Context, s Store) ([]Branch, error) { panic("todo") }

// TraceKind is what speaks of a higher version.
type TraceKind uint8

// The kinds of traces.
const (
	HintTrace TraceKind = iota + 1
	TransactionTrace
	TagTrace
	BranchTrace
)

// Trace is a sign that a version above the newest manifest existed.
type Trace struct {
	Kind    TraceKind
	Name    string
	Version uint64
	// Strong: a tag or branch, which pin a version, not a hint or a transaction
	// file, which a failed commit leaves too.
	Strong  bool
	ModTime time.Time
}

// Traces looks for signs of a version above newest.
func Traces(ctx context.Context, s Store, vs *VersionSet, newest *Manifest) ([]Trace, error) {
	panic("todo")
}

// Operation is the kind of a transaction: its field number in the message.
type Operation int32

// Transaction is what a commit did.
type Transaction struct {
	ReadVersion        uint64
	UUID, Tag          string
	Properties         map[string]string
	Operation          Operation
	DeletedFragmentIDs []uint64
	UpdatedFragmentIDs []uint64
	Predicate          string
}

// DecodeTransaction decodes a transaction message.
func DecodeTransaction(b []byte) (Transaction, error) { panic("todo") }

// ParseDeletionName reads the name of a deletion file, with or without its folder.
func ParseDeletionName(name string) (fragment, readVersion, id uint64, bitmap bool, err error) {
	panic("todo")
}

// FooterLen is how many last bytes of a Lance file CheckLanceFooter wants.
const FooterLen = 40

// CheckLanceFooter says whether the tail of a file of size bytes is that of a Lance file.
func CheckLanceFooter(tail []byte, size int64) error { panic("todo") }

// CheckDeletionFile says whether the bytes are a deletion file.
func CheckDeletionFile(name string, whole []byte) error { panic("todo") }

// MinFileSize is the fewest bytes that a whole file of this kind and name has.
func MinFileSize(kind Kind, name string) int64 { panic("todo") }
