package lancetest

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
)

// ManifestName is the path of the manifest below the dataset root.
func (b *Builder) ManifestName() string { return "_versions/" + b.naming.Name(b.version) }

// TransactionID is the uuid of the version's transaction.
func (b *Builder) TransactionID() string {
	return fixedUUID("transaction", b.branch, fmt.Sprint(b.version)).String()
}

// TransactionName is the name of the transaction file, below _transactions/.
func (b *Builder) TransactionName() string {
	return fmt.Sprintf("%d-%s.txn", b.version-1, b.TransactionID())
}

// DataName is the path below the dataset root (or base) of the i-th data file of
// a fragment.
func (b *Builder) DataName(id uint64, i int) string { return "data/" + b.fragment(id).files[i].Path }

// DeletionName is the path below the dataset root (or base) of a fragment's
// deletion file.
func (b *Builder) DeletionName(id uint64) string { return deletionName(b.fragment(id)) }

func deletionName(f *fragment) string {
	ext := "arrow"
	if f.deletion.bitmap {
		ext = "bin"
	}
	return fmt.Sprintf("_deletions/%d-%d-%d.%s", f.id, f.deletion.readVersion, f.deletion.id, ext)
}

// Manifest gives the bytes of the manifest file:
//
//	[prefix] [u32 length, IndexSection] [u32 length, Transaction] [u32 length, Manifest]
//	[i64 position of the Manifest's length, u16 major, u16 minor, "LANC"]
func (b *Builder) Manifest() []byte {
	out := slices.Clone(b.prefix)
	framed := func(msg []byte) (pos uint64) {
		pos = uint64(len(out))
		out = binary.LittleEndian.AppendUint32(out, uint32(len(msg)))
		out = append(out, msg...)
		return pos
	}
	var indexPos, txnPos *uint64
	if len(b.indices) > 0 {
		var section []byte
		for _, x := range b.indices {
			section = appendBytes(section, 1, b.encodeIndex(x))
		}
		pos := framed(section)
		indexPos = &pos
	}
	if !b.noInline && !b.noTransaction {
		pos := framed(b.transactionMessage())
		txnPos = &pos
	}
	pos := framed(b.message(indexPos, txnPos))
	out = binary.LittleEndian.AppendUint64(out, pos)
	out = binary.LittleEndian.AppendUint16(out, b.footer[0])
	out = binary.LittleEndian.AppendUint16(out, b.footer[1])
	return append(out, "LANC"...)
}

func (b *Builder) transactionMessage() []byte {
	if b.transaction != nil {
		return b.transaction
	}
	const appendOperation = 100
	msg := appendUint(nil, 1, b.version-1)
	msg = appendString(msg, 2, b.TransactionID())
	return appendBytes(msg, appendOperation, nil)
}

func (b *Builder) message(indexPos, txnPos *uint64) []byte {
	var m []byte
	for i, c := range b.columns {
		field := encodeField(c, int32(i))
		if b.primaryKey && i == 0 {
			field = encodeKeyField(c)
		}
		m = appendBytes(m, 1, field)
	}
	var nextRowID uint64
	for _, f := range b.fragments {
		m = appendBytes(m, 2, b.encodeFragment(f, &nextRowID))
	}
	m = appendUint(m, 3, b.version)
	if indexPos != nil {
		m = appendUintAlways(m, 6, *indexPos)
	}
	ts := appendUint(appendUint(nil, 1, uint64(b.timestamp.Unix())), 2, uint64(b.timestamp.Nanosecond()))
	m = appendBytes(m, 7, ts)
	reader, writer := b.featureFlags()
	m = appendUint(appendUint(m, 9, reader), 10, writer)
	if id := b.highestFragment(); id != nil {
		m = appendUintAlways(m, 11, *id)
	}
	if !b.noTransaction {
		m = appendString(m, 12, b.TransactionName())
	}
	if b.writer[0] != "" {
		m = appendBytes(m, 13, appendString(appendString(nil, 1, b.writer[0]), 2, b.writer[1]))
	}
	m = appendUint(m, 14, nextRowID)
	if b.format != "" {
		m = appendBytes(m, 15, appendString(appendString(nil, 1, "lance"), 2, b.format))
	}
	for _, kv := range b.configs {
		m = appendMap(m, 16, kv.key, []byte(kv.value))
	}
	for _, x := range b.bases {
		m = appendBytes(m, 18, appendString(appendBool(appendUint(nil, 1, uint64(x.id)), 3, x.isRoot), 4, x.path))
	}
	m = appendString(m, 20, b.branch)
	if txnPos != nil {
		m = appendUintAlways(m, 21, *txnPos)
	}
	return append(m, b.unknown...)
}

func (b *Builder) featureFlags() (reader, writer uint64) {
	if b.flags != nil {
		return b.flags[0], b.flags[1]
	}
	const deletions, rowIDs, config, basePaths, overlays = 1, 2, 8, 16, 64
	var both uint64
	for _, f := range b.fragments {
		if f.deletion != nil {
			both |= deletions
		}
		if hasField(f.extra, 11) {
			both |= overlays
		}
	}
	if b.stableRowIDs {
		both |= rowIDs
	}
	if len(b.bases) > 0 {
		both |= basePaths
	}
	writer = both
	if len(b.configs) > 0 {
		writer |= config
	}
	return both, writer
}

func (b *Builder) highestFragment() *uint64 {
	if b.maxFragmentID != nil {
		return b.maxFragmentID
	}
	var highest *uint64
	for _, f := range b.fragments {
		if highest == nil || f.id > *highest {
			highest = &f.id
		}
	}
	return highest
}

// encodeField is a nullable field at the top level. Field ids of 0 and the type
// value of a plain field are left out, as by the real writer.
func encodeField(c schemaField, id int32) []byte {
	f := appendString(nil, 2, c.name)
	f = appendUint(f, 3, uint64(id))
	f = appendUintAlways(f, 4, ^uint64(0)) // parent -1
	f = appendString(f, 5, c.logical)
	f = appendBool(f, 6, true)
	return appendUint(f, 7, legacyEncoding(c))
}

// legacyEncoding is Field.encoding, which only the 0.1 format looks at.
func legacyEncoding(c schemaField) uint64 {
	const plain, varBinary = 1, 2
	if c.logical == "string" {
		return varBinary
	}
	return plain
}

// encodeKeyField is field 0, not null, as unenforced primary key.
func encodeKeyField(c schemaField) []byte {
	f := appendString(nil, 2, c.name)
	f = appendUintAlways(f, 4, ^uint64(0))
	f = appendUint(appendString(f, 5, c.logical), 7, legacyEncoding(c))
	f = appendMap(f, 10, "lance-schema:unenforced-primary-key", []byte("true"))
	return appendBool(f, 12, true)
}

func (b *Builder) encodeFragment(f *fragment, nextRowID *uint64) []byte {
	m := appendUint(nil, 1, f.id)
	for _, file := range f.files {
		m = appendBytes(m, 2, encodeFile(file, int64(len(b.content(f, file)))))
	}
	if d := f.deletion; d != nil {
		x := appendBool(nil, 1, d.bitmap)
		x = appendUint(appendUint(appendUint(x, 2, d.readVersion), 3, d.id), 4, d.recordedCount)
		if d.base != nil {
			x = appendUintAlways(x, 7, uint64(*d.base))
		}
		m = appendBytes(m, 3, x)
	}
	m = appendUint(m, 4, f.rows)
	if b.stableRowIDs {
		// RowIdSequence{segment{range{start, end}}}
		rows := appendUint(appendUint(nil, 1, *nextRowID), 2, *nextRowID+f.rows)
		*nextRowID += f.rows
		m = appendBytes(m, 5, appendBytes(nil, 1, appendBytes(nil, 1, rows)))
	}
	return append(m, f.extra...)
}

func encodeFile(file File, size int64) []byte {
	m := appendString(nil, 1, file.Path)
	m = appendInts(m, 2, file.Fields)
	if file.Major >= 2 {
		columns := make([]int32, len(file.Fields))
		for i := range columns {
			columns[i] = int32(i)
		}
		m = appendInts(m, 3, columns)
	}
	m = appendUint(appendUint(m, 4, uint64(file.Major)), 5, uint64(file.Minor))
	switch {
	case file.Size == UnknownSize:
	case file.Size != 0:
		m = appendUint(m, 6, uint64(file.Size))
	default:
		m = appendUint(m, 6, uint64(size))
	}
	if file.BaseID != nil {
		m = appendUintAlways(m, 7, uint64(*file.BaseID))
	}
	return m
}

func (b *Builder) encodeIndex(x *index) []byte {
	m := appendBytes(nil, 1, appendBytes(nil, 1, x.id[:]))
	m = appendInts(m, 2, x.fields)
	m = appendString(m, 3, x.name)
	m = appendUint(m, 4, b.version)
	if len(x.bitmap) > 0 {
		m = appendBytes(m, 5, x.bitmap)
	}
	details := appendString(nil, 1, x.details)
	if len(x.value) > 0 {
		details = appendBytes(details, 2, x.value)
	}
	m = appendBytes(m, 6, details)
	m = appendUintAlways(m, 7, 0)
	m = appendUint(m, 8, uint64(b.timestamp.UnixMilli()))
	if x.base != nil {
		m = appendUintAlways(m, 9, uint64(*x.base))
	}
	if x.unnamed {
		return m
	}
	for _, f := range x.files {
		size := f.Size
		switch size {
		case UnknownSize:
			size = 0
		case 0:
			size = int64(len(b.dataFile(1, []int32{0})))
		}
		m = appendBytes(m, 10, appendUint(appendString(nil, 1, f.Path), 2, uint64(size)))
	}
	return m
}

// coverage is the portable roaring bitmap of fragment ids.
func coverage(fragments []*fragment) []byte {
	bitmap := roaring.New()
	for _, f := range fragments {
		bitmap.Add(uint32(f.id))
	}
	raw, err := bitmap.ToBytes()
	if err != nil {
		panic(fmt.Sprintf("lancetest: encode bitmap: %v", err))
	}
	return raw
}
