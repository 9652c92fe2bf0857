package lancetest

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protowire"
)

// UnknownSize, as File.Size or IndexFile.Size, leaves the size out of the
// manifest, as old writers do.
const UnknownSize int64 = -1

// NoFields, as File.Fields, is a data file whose fields are all tombstoned (-2).
var NoFields = []int32{-2}

// File is one data file of a fragment.
type File struct {
	// Path below data/ (below the base when BaseID is set). Empty gets
	// "<fragment>-<number>.lance".
	Path string
	// Size as the manifest records it: 0 is the size of the generated object.
	Size int64
	// Fields are field ids; nil means all columns of the table.
	Fields []int32
	// BaseID points into the base paths; nil is the own root.
	BaseID *uint32
	// Major and Minor are the recorded file version; both 0 mean 2.2. A version
	// below 2.0 gets no column indices, as in the 0.1 format.
	Major, Minor uint32
	// Data replaces the generated content.
	Data []byte
}

// IndexFile is one file of an index, by its path below the index folder.
type IndexFile struct {
	Path string
	Size int64 // 0 is the size of the generated object
}

// ID makes a base id for File.BaseID.
func ID(n uint32) *uint32 { return &n }

type fragment struct {
	id       uint64
	rows     uint64
	files    []File
	deletion *deletion
	extra    []byte
}

type deletion struct {
	bitmap        bool
	readVersion   uint64
	id            uint64
	offsets       []uint32
	base          *uint32
	recordedCount uint64
}

type index struct {
	name    string
	id      uuid.UUID
	fields  []int32
	bitmap  []byte
	details string
	value   []byte
	base    *uint32
	files   []IndexFile
	unnamed bool
}

type base struct {
	id     uint32
	path   string
	isRoot bool
}

type ref struct {
	name, kind string
	parent     string
	version    uint64
}

type keyValue struct{ key, value string }

// Builder makes one version of a table. The zero choice of everything is a table
// that the real library (Lance 12) opens and scans: version 1, V2 names, one
// int32 column "id", data files of format 2.2 in which row values equal the field
// id, an inline transaction and a transaction file.
//
// Methods change the builder and return it. They panic on misuse, such as
// deleting from a fragment that was not added.
type Builder struct {
	version       uint64
	naming        Naming
	columns       []schemaField
	fragments     []*fragment
	indices       []*index
	bases         []base
	refs          []ref
	configs       []keyValue
	unknown       []byte
	flags         *[2]uint64
	timestamp     time.Time
	writer        [2]string
	format        string
	branch        string
	maxFragmentID *uint64
	stableRowIDs  bool
	noInline      bool
	noTransaction bool
	transaction   []byte
	prefix        []byte
	footer        [2]uint16
	hint          uint64
	primaryKey    bool
}

// New begins a table at version 1.
func New() *Builder {
	return &Builder{
		version: 1, columns: []schemaField{{"id", "int32"}}, writer: [2]string{"lance", "12.0.0"}, format: "2.2",
		timestamp: time.Date(2026, 11, 1, 12, 0, 0, 123456789, time.UTC), footer: [2]uint16{0, 2},
	}
}

// Version sets the version that is written.
func (b *Builder) Version(v uint64) *Builder { b.version = v; return b }

// Naming sets the naming of the manifest file.
func (b *Builder) Naming(n Naming) *Builder { b.naming = n; return b }

// Columns sets the schema: int32 columns with the field ids 0, 1, …
func (b *Builder) Columns(names ...string) *Builder {
	b.columns = nil
	for _, name := range names {
		b.columns = append(b.columns, schemaField{name, "int32"})
	}
	return b
}

// schemaField is a column of the table: name and logical type.
type schemaField struct{ name, logical string }

// Values adds a fragment with the given rows in one data file of format 2.0, and
// makes these columns the schema. Fragments with values and generated ones do not
// go together in one table. Columns must have equally many rows.
func (b *Builder) Values(columns ...Column) *Builder {
	b.columns = nil
	for _, c := range columns {
		b.columns = append(b.columns, schemaField{c.name, c.logical()})
	}
	b.format = "2.0"
	return b.Fragment(uint64(columns[0].rows()), File{Major: 2, Minor: 0, Data: ValueFile(columns...)})
}

// Timestamp sets the commit time.
func (b *Builder) Timestamp(t time.Time) *Builder { b.timestamp = t; return b }

// WriterVersion sets the library and version that claim to have written the
// manifest; an empty library leaves the field out.
func (b *Builder) WriterVersion(library, version string) *Builder {
	b.writer = [2]string{library, version}
	return b
}

// DataFormat sets the recorded data format ("2.1"); empty leaves it out.
func (b *Builder) DataFormat(version string) *Builder { b.format = version; return b }

// Footer sets the format numbers in the manifest's footer (0 and 2 by default).
func (b *Builder) Footer(major, minor uint16) *Builder {
	b.footer = [2]uint16{major, minor}
	return b
}

// Flags overrides the feature flags, which otherwise follow from the content.
func (b *Builder) Flags(reader, writer uint64) *Builder {
	b.flags = &[2]uint64{reader, writer}
	return b
}

// OnBranch makes this a version of a branch: only the name in the manifest. The
// dataset belongs below tree/<name> of the main root, see [Builder.Branch].
func (b *Builder) OnBranch(name string) *Builder { b.branch = name; return b }

// MaxFragmentID sets the recorded high-water mark instead of the highest id.
func (b *Builder) MaxFragmentID(id uint64) *Builder { b.maxFragmentID = &id; return b }

// StableRowIDs gives every fragment inline row ids and sets flag 2.
func (b *Builder) StableRowIDs() *Builder { b.stableRowIDs = true; return b }

// Config adds an entry of the table configuration, which sets writer flag 8.
func (b *Builder) Config(key, value string) *Builder {
	b.configs = append(b.configs, keyValue{key, value})
	return b
}

// Hint makes the version hint file name version v.
func (b *Builder) Hint(v uint64) *Builder { b.hint = v; return b }

// NoInlineTransaction leaves out the inline transaction, as releases before
// Lance 8 do.
func (b *Builder) NoInlineTransaction() *Builder { b.noInline = true; return b }

// NoTransaction leaves out transaction file, its name, and the inline copy.
func (b *Builder) NoTransaction() *Builder { b.noTransaction = true; return b }

// Transaction replaces the transaction message (an empty Append by default). The
// message must hold the uuid that TransactionID gives, when a reader shall find
// the file by it.
func (b *Builder) Transaction(message []byte) *Builder { b.transaction = message; return b }

// Prefix puts bytes in front of everything else in the manifest file, where the
// 0.1 format keeps dictionary values.
func (b *Builder) Prefix(raw []byte) *Builder { b.prefix = raw; return b }

// Unknown adds a length-delimited field to the manifest message.
func (b *Builder) Unknown(field protowire.Number, value []byte) *Builder {
	b.unknown = appendBytes(b.unknown, field, value)
	return b
}

// UnknownInFragment adds a length-delimited field to a fragment's message.
func (b *Builder) UnknownInFragment(id uint64, field protowire.Number, value []byte) *Builder {
	f := b.fragment(id)
	f.extra = appendBytes(f.extra, field, value)
	return b
}

// Fragment adds a fragment with the next id. Without files it gets one data file
// with all columns.
func (b *Builder) Fragment(rows uint64, files ...File) *Builder {
	var id uint64
	for _, f := range b.fragments {
		id = max(id, f.id+1)
	}
	return b.FragmentID(id, rows, files...)
}

// FragmentID adds a fragment with a chosen id; ids need be neither ascending nor
// unique.
func (b *Builder) FragmentID(id, rows uint64, files ...File) *Builder {
	f := &fragment{id: id, rows: rows}
	if len(files) == 0 {
		files = []File{{}}
	}
	for i, file := range files {
		if file.Path == "" {
			file.Path = fmt.Sprintf("%d-%d.lance", id, i)
		}
		if file.Fields == nil {
			for c := range b.columns {
				file.Fields = append(file.Fields, int32(c))
			}
		}
		if file.Major == 0 && file.Minor == 0 {
			file.Major, file.Minor = 2, 2
		}
		f.files = append(f.files, file)
	}
	b.fragments = append(b.fragments, f)
	return b
}

// Drop removes fragments, for the next version of a table.
func (b *Builder) Drop(ids ...uint64) *Builder {
	b.fragments = slices.DeleteFunc(b.fragments, func(f *fragment) bool { return slices.Contains(ids, f.id) })
	return b
}

func (b *Builder) fragment(id uint64) *fragment {
	for _, f := range b.fragments {
		if f.id == id {
			return f
		}
	}
	panic(fmt.Sprintf("lancetest: no fragment %d", id))
}

// Delete gives a fragment a sparse deletion file (.arrow) of its first n rows.
func (b *Builder) Delete(id, n uint64) *Builder { return b.delete(id, n, false) }

// DeleteBitmap gives a fragment a dense deletion file (.bin) of its first n rows.
func (b *Builder) DeleteBitmap(id, n uint64) *Builder { return b.delete(id, n, true) }

func (b *Builder) delete(id, n uint64, bitmap bool) *Builder {
	d := &deletion{bitmap: bitmap, readVersion: b.version - 1, id: 1000 + id, recordedCount: n}
	for i := range n {
		d.offsets = append(d.offsets, uint32(i))
	}
	b.fragment(id).deletion = d
	return b
}

// DeletionBase puts a fragment's deletion file under a base path.
func (b *Builder) DeletionBase(id uint64, baseID uint32) *Builder {
	b.fragment(id).deletion.base = &baseID
	return b
}

// DeletionCount records another number of deleted rows than the file holds; 0
// means unknown, as old writers leave it.
func (b *Builder) DeletionCount(id, n uint64) *Builder {
	b.fragment(id).deletion.recordedCount = n
	return b
}

// Overlay adds an overlay data file to a fragment and sets flag 64.
func (b *Builder) Overlay(id uint64, path string) *Builder {
	file := encodeFile(File{Path: path, Fields: []int32{0}, Major: 2, Minor: 2}, int64(len(b.dataFile(1, []int32{0}))))
	return b.UnknownInFragment(id, 11, appendBytes(nil, 1, file))
}

// ExternalRowIDs makes a fragment name a file with its row ids (path relative to
// the dataset root), which no released writer does.
func (b *Builder) ExternalRowIDs(id uint64, path string, size uint64) *Builder {
	return b.UnknownInFragment(id, 6, appendUint(appendString(nil, 1, path), 3, size))
}

// Index adds an index on the first column that covers all fragments added so far
// and names its files. Its content is no usable index. Without files the manifest
// names none, as before Lance 8, and the folder holds page_data.lance and
// page_lookup.lance.
func (b *Builder) Index(name string, files ...IndexFile) *Builder {
	x := &index{
		name: name, id: fixedUUID("index", name, fmt.Sprint(len(b.indices))), fields: []int32{0},
		details: "/lance.table.BTreeIndexDetails", files: files, bitmap: coverage(b.fragments),
	}
	if len(files) == 0 {
		x.unnamed = true
		x.files = []IndexFile{{Path: "page_data.lance"}, {Path: "page_lookup.lance"}}
	}
	b.indices = append(b.indices, x)
	return b
}

// IndexBase puts the index added last under a base path.
func (b *Builder) IndexBase(baseID uint32) *Builder {
	b.indices[len(b.indices)-1].base = &baseID
	return b
}

// IndexUncovered empties the fragment bitmap of the index added last, which means
// unknown coverage.
func (b *Builder) IndexUncovered() *Builder {
	b.indices[len(b.indices)-1].bitmap = nil
	return b
}

// IndexType sets the details message of the index added last, for example
// "/lance.index.pb.VectorIndexDetails".
func (b *Builder) IndexType(typeURL string) *Builder {
	b.indices[len(b.indices)-1].details = typeURL
	return b
}

// IndexFolder is the folder, below the dataset root, of the i-th index.
func (b *Builder) IndexFolder(i int) string { return "_indices/" + b.indices[i].id.String() }

// MemWAL adds the system index __lance_mem_wal with one identity sharding spec on
// the first column, naming the maintained indices, and makes that column the
// primary key. The shards themselves are [Shard] values.
func (b *Builder) MemWAL(maintained ...string) *Builder {
	b.primaryKey = true
	field := appendString(appendString(appendBytes(appendString(nil, 1, "bucket"), 2, []byte{0}), 3, "identity"), 5, "utf8")
	spec := appendBytes(appendUint(nil, 1, 1), 2, field)
	details := appendBytes(nil, 7, spec)
	for _, name := range maintained {
		details = appendString(details, 8, name)
	}
	b.indices = append(b.indices, &index{
		name: "__lance_mem_wal", id: fixedUUID("index", "mem_wal"), details: "/lance.table.MemWalIndexDetails", value: details, unnamed: true,
	})
	return b
}

// Merged says in the MemWAL's entry that the rows of a shard's generations up to this
// number are in the base table. MemWAL comes before it.
func (b *Builder) Merged(s Shard, generation uint64) *Builder {
	x := b.indices[len(b.indices)-1]
	id := s.id()
	x.value = appendBytes(x.value, 9, appendUint(appendBytes(nil, 1, appendBytes(nil, 1, id[:])), 2, generation))
	return b
}

// Base adds a base path.
func (b *Builder) Base(id uint32, path string, isRoot bool) *Builder {
	b.bases = append(b.bases, base{id, path, isRoot})
	return b
}

// Tag adds a tag of main.
func (b *Builder) Tag(name string, version uint64) *Builder {
	b.refs = append(b.refs, ref{name: name, kind: "tags", version: version})
	return b
}

// TagOn adds a tag of a version of a branch.
func (b *Builder) TagOn(name, branch string, version uint64) *Builder {
	b.refs = append(b.refs, ref{name: name, kind: "tags", parent: branch, version: version})
	return b
}

// Branch adds the ref of a branch made from a version of parent ("" is main). The
// branch's own manifests are another Builder's, see [Builder.OnBranch].
func (b *Builder) Branch(name, parent string, parentVersion uint64) *Builder {
	b.refs = append(b.refs, ref{name: name, kind: "branches", parent: parent, version: parentVersion})
	return b
}

// Next is a copy for the following version: the same content, version + 1 and a
// minute later. The receiver stays as it is.
func (b *Builder) Next() *Builder {
	n := *b
	n.version++
	n.timestamp = b.timestamp.Add(time.Minute)
	n.fragments = nil
	for _, f := range b.fragments {
		c := *f
		if f.deletion != nil {
			d := *f.deletion
			c.deletion = &d
		}
		c.extra = slices.Clone(f.extra)
		n.fragments = append(n.fragments, &c)
	}
	n.indices = nil
	for _, x := range b.indices {
		c := *x
		n.indices = append(n.indices, &c)
	}
	n.bases, n.refs, n.configs = slices.Clone(b.bases), slices.Clone(b.refs), slices.Clone(b.configs)
	n.unknown, n.columns, n.transaction = slices.Clone(b.unknown), slices.Clone(b.columns), nil
	return &n
}

// fixedUUID is a version 4 UUID that depends on parts only, so that the same
// builder always gives the same bytes.
func fixedUUID(parts ...string) uuid.UUID {
	sum := sha256.Sum256(fmt.Append(nil, parts))
	id := uuid.UUID(sum[:16])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}
