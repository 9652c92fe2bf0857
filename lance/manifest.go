package lance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// footerSize is the frame at the end of a manifest file.
	footerSize = 16
	// minManifestSize is an empty message and its length, and the frame.
	minManifestSize = 4 + footerSize
	// maxManifestSize bounds what is read into memory: a fragment is about a
	// hundred bytes, and ten million of them are more than any table has.
	maxManifestSize = 2 << 30
)

// magic ends every Lance file and every manifest file.
const magic = "LANC"

// WriterVersion is who wrote a manifest. It is empty in tables older than 2023.
type WriterVersion struct {
	// Library is "lance" for the real one; Version is major.minor.patch.
	Library, Version, Prerelease, Build string
}

// BasePath is a further place where files of a dataset lie.
type BasePath struct {
	// ID is what files refer to; it is no position, and 0 is legal.
	ID   uint32
	Name string
	// IsDatasetRoot: the files lie in data/, _deletions/ and _indices/ below Path,
	// else directly below it.
	IsDatasetRoot bool
	// Path is an absolute path or URI, as the creator of the clone, branch or
	// import wrote it.
	Path string
}

// Summary is what one walk over the fragments adds up to.
type Summary struct {
	Fragments, DataFiles, DeadFiles, DeletionFiles, Overlays, ExternalFiles int64
	// PhysicalRows and LiveRows are -1 when some fragment does not tell.
	PhysicalRows, LiveRows int64
	// DuplicateIDs: two fragments share an id, which recent writers refuse.
	DuplicateIDs bool
}

// Manifest is one version of a dataset. It is immutable and safe for concurrent
// use. It holds the bytes of its file once; what its iterators yield points into
// them.
type Manifest struct {
	Version uint64
	// ReaderFlags and WriterFlags are the feature words; see CheckReaderFlags.
	ReaderFlags, WriterFlags uint64
	// Timestamp by the writer's clock (UTC); zero when not recorded.
	Timestamp     time.Time
	WriterVersion WriterVersion
	// DataFormat is "0.1", "2.0", …; empty before Lance 0.17, whose files are 0.1.
	DataFormat string
	// MaxFragmentID is the highest fragment id ever given; nil when never set.
	MaxFragmentID *uint32
	// NextRowID counts stable row ids; 0 without them.
	NextRowID uint64
	// TransactionFile is a name below _transactions/; empty when there is none.
	TransactionFile string
	// Branch is empty for main.
	Branch string
	// Tag is a field that no known writer uses; tags are files, see [Tags].
	Tag       string
	BasePaths []BasePath
	// Config, TableMetadata and SchemaMetadata are nil when empty.
	Config, TableMetadata, SchemaMetadata map[string]string
	// FooterMajor and FooterMinor are the numbers of the file's frame.
	FooterMajor, FooterMinor uint16
	// BlobDatasetVersion is not 0 in tables of an abandoned experiment that kept
	// large values in a second dataset, which this package does not read.
	BlobDatasetVersion uint64
	// Summary of the fragments.
	Summary Summary

	file          []byte // the whole object
	pos           int    // of the message's length prefix in file
	msg           []byte // the Manifest message
	indexOffset   *uint64
	txnOffset     *uint64
	indexSection  []byte // the IndexSection message; nil without one
	txnSection    []byte // the inline Transaction message; nil without one
	bases         map[uint32]int
	blobFields    map[int32]struct{}
	blobV2        bool
	memWAL        bool
	repeatedPaths bool // some object is named twice, so Files must remember
}

// ReadManifest reads the manifest object of an entry, whole and with one request,
// and checks all of it that this package understands: what it returns does not
// fail later.
//
// The error is, or wraps: a *CorruptError when the bytes are no manifest of that
// version; ErrUnknownFormat when they are of a format from elsewhere; the store's
// own error, which says nothing about the bytes, when reading failed.
func ReadManifest(ctx context.Context, s Store, e VersionEntry) (*Manifest, error) {
	b, _, err := readObject(ctx, s, e.Name, maxManifestSize)
	if err != nil {
		return nil, fmt.Errorf("read manifest %s: %w", e.Name, err)
	}
	m, err := DecodeManifest(b)
	if err == nil && m.Version != e.Version {
		err = corrupt("the name says version %d, the content %d", e.Version, m.Version)
	}
	if err != nil {
		return nil, named(e.Name, err)
	}
	return m, nil
}

// named completes an error about bytes with the object that they came from.
func named(name string, err error) error {
	if c, ok := errors.AsType[*CorruptError](err); ok {
		return &CorruptError{Name: name, Reason: c.Reason}
	}
	return fmt.Errorf("%s: %w", name, err)
}

// readObject reads a whole object of at most limit bytes.
func readObject(ctx context.Context, s Store, name string, limit int64) (b []byte, o Object, err error) {
	r, o, err := s.Get(ctx, name, 0, -1)
	if err != nil {
		return nil, o, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if o.Size > limit {
		return nil, o, fmt.Errorf("object of %d bytes is larger than the %d that are read", o.Size, limit)
	}
	if o.Size < 0 {
		b, err = io.ReadAll(io.LimitReader(r, limit+1))
		if err == nil && int64(len(b)) > limit {
			err = fmt.Errorf("object is larger than the %d bytes that are read", limit)
		}
		return b, o, err
	}
	b = make([]byte, o.Size)
	if _, err := io.ReadFull(r, b); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // an empty body is as short as any other
		}
		return nil, o, err
	}
	// One more read lets the store report a body that does not end here.
	if n, err := io.Copy(io.Discard, io.LimitReader(r, 1)); err != nil || n != 0 {
		return nil, o, errors.Join(err, fmt.Errorf("the body does not end after the %d bytes that the store told", o.Size))
	}
	return b, o, nil
}

// Base finds a base path by id; 0 is a legal id. An id that is not there is for
// the caller to report: nothing is known about the files that refer to it.
func (m *Manifest) Base(id uint32) (BasePath, bool) {
	i, ok := m.bases[id]
	if !ok {
		return BasePath{}, false
	}
	return m.BasePaths[i], true
}

// Raw is the whole manifest file. It must not be changed.
func (m *Manifest) Raw() []byte { return m.file }

// Message is the Manifest message inside the file, and its offset there. It must
// not be changed.
func (m *Manifest) Message() (msg []byte, offset int) { return m.msg, m.pos + 4 }

// HasBlobV2 reports whether some live data file holds a column of the blob v2
// type in a format (2.2 and later) that keeps large values in sidecar files next
// to the data file. The manifest does not name those.
func (m *Manifest) HasBlobV2() bool { return m.blobV2 }

// HasMemWAL reports whether the table has a MemWAL: rows below _mem_wal/ that the
// manifest does not name.
func (m *Manifest) HasMemWAL() bool { return m.memWAL }

// InlineTransaction decodes the transaction inside the manifest file; ok is false
// when there is none.
func (m *Manifest) InlineTransaction() (t Transaction, ok bool, err error) {
	if m.txnSection == nil {
		return t, false, nil
	}
	t, err = DecodeTransaction(m.txnSection)
	return t, true, err
}

// fragmentMessages yields the raw DataFragment messages.
func (m *Manifest) fragmentMessages() iter.Seq2[[]byte, error] {
	return messages(m.msg, 2)
}

// messages yields the bodies of the length-delimited fields num of a message.
func messages(b []byte, num protowire.Number) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for len(b) > 0 {
			f, rest, err := cutField(b)
			if err == nil && f.num == num {
				err = f.is(protowire.BytesType)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if f.num == num && !yield(f.body[:len(f.body):len(f.body)], nil) {
				return
			}
			b = rest
		}
	}
}

// Fragments streams the fragments in the order of the list. The Fragment and the
// slices in it are reused by the next iteration; its strings and Raw stay good.
func (m *Manifest) Fragments() iter.Seq2[*Fragment, error] {
	return m.walk(true)
}

// walk streams the fragments; without names the strings are left out, and nothing
// is allocated for a fragment.
func (m *Manifest) walk(names bool) iter.Seq2[*Fragment, error] {
	return func(yield func(*Fragment, error) bool) {
		f := &Fragment{names: names}
		for b, err := range m.fragmentMessages() {
			if err == nil {
				err = f.parse(b)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(f, nil) {
				return
			}
		}
	}
}
