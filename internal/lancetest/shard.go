package lancetest

import (
	"cmp"
	"fmt"

	"github.com/google/uuid"
)

// Generation is one flushed generation in a shard manifest. Its folder below the
// shard is "<8 hex>_gen_<n>", a dataset root of its own (write a [Builder] there).
type Generation struct {
	Number uint64
	Rows   uint64
}

// Shard is a MemWAL shard in one state. Name tells shards apart.
type Shard struct {
	Name        string
	Version     uint64
	Epoch       uint64
	Generations []Generation
	// Status is field 15 of the shard manifest; 0 is active, 1 sealed.
	Status uint64
	// NoHint leaves the version hint out; Hint is the version that it names instead of
	// the shard's own.
	NoHint bool
	Hint   uint64
	// Entries are the numbers of log entries that no generation holds yet.
	Entries uint64
}

func (s Shard) id() uuid.UUID { return fixedUUID("shard", s.Name) }

// Folder is the shard's folder below the dataset root.
func (s Shard) Folder() string { return "_mem_wal/" + s.id().String() }

// ID is the shard's id, as the base table's merge progress names it.
func (s Shard) ID() string { return s.id().String() }

// EntryName is the log entry at a position.
func (s Shard) EntryName(position uint64) string {
	return s.Folder() + "/wal/" + reversedBits(position) + ".arrow"
}

// WriteGenerations puts each generation as the dataset that it is, with its key index:
// one fragment of its rows.
func (s Shard) WriteGenerations(put func(name string, data []byte)) {
	for _, g := range s.Generations {
		b := New().Version(1).Naming(V2).Fragment(g.Rows)
		root := s.GenerationFolder(g.Number) + "/"
		b.WriteTo(func(name string, data []byte) { put(root+name, data) })
		for _, name := range []string{"page_data.lance", "page_lookup.lance"} {
			put(root+"_pk_index/"+name, DataFile(g.Rows, []string{"key"}, []int32{1}))
		}
	}
}

// GenerationData is the data file of a generation that WriteGenerations puts.
func (s Shard) GenerationData(number uint64) string {
	return s.GenerationFolder(number) + "/" + New().Version(1).Fragment(1).DataName(0, 0)
}

// GenerationFolder is a generation's folder below the dataset root.
func (s Shard) GenerationFolder(number uint64) string { return s.Folder() + "/" + s.generation(number) }

func (s Shard) generation(number uint64) string {
	return fmt.Sprintf("%x_gen_%d", fixedUUID("generation", s.Name, fmt.Sprint(number)).String()[:4], number)
}

// Manifest gives the bytes of the shard manifest.
func (s Shard) Manifest() []byte {
	var last uint64
	for _, g := range s.Generations {
		last = max(last, g.Number)
	}
	m := appendUint(appendUint(nil, 1, s.Version), 2, s.Epoch)
	m = appendUint(appendUint(appendUint(m, 3, last), 4, last+s.Entries), 6, last+1)
	for _, g := range s.Generations {
		x := appendString(appendUint(nil, 1, g.Number), 2, s.generation(g.Number))
		x = appendUint(appendUint(x, 3, 40*g.Rows), 4, g.Rows)
		m = appendBytes(m, 8, appendUint(x, 5, 10*g.Rows))
	}
	m = appendUint(m, 10, 1)
	id := s.id()
	m = appendBytes(m, 11, appendBytes(nil, 1, id[:]))
	return appendUint(m, 15, s.Status)
}

// ManifestName is the path of the shard manifest below the dataset root: 64
// binary digits of the version, least significant first.
func (s Shard) ManifestName() string {
	return s.Folder() + "/manifest/" + reversedBits(s.Version) + ".binpb"
}

// WriteTo puts the shard manifest and its hint, by path below the dataset root.
func (s Shard) WriteTo(put func(name string, data []byte)) {
	put(s.ManifestName(), s.Manifest())
	if !s.NoHint {
		put(s.Folder()+"/manifest/version_hint.json", fmt.Appendf(nil, `{"version":%d}`, cmp.Or(s.Hint, s.Version)))
	}
}
