package lance

import (
	"encoding/hex"
	"iter"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Names of index entries that belong to the library itself.
const (
	// MemWALIndex marks a table with a MemWAL. It has no files.
	MemWALIndex = "__lance_mem_wal"
	// FragReuseIndex maps fragments across compactions. It has one file when its
	// details are large, and none otherwise.
	FragReuseIndex = "__lance_frag_reuse"
)

// IndexFile is a recorded file of an index.
type IndexFile struct {
	// Path relative to the index's folder.
	Path string
	// Size in bytes; 0 when not recorded.
	Size int64
}

// Index is one segment of an index; segments of one index share its name.
type Index struct {
	// UUID in its hyphenated lower-case form names the index's folder.
	UUID, Name string
	// Fields are the ids of the indexed fields; empty for the library's own entries.
	Fields []int32
	// DatasetVersion is the version that the index was built from.
	DatasetVersion uint64
	// Files are empty when not recorded (before Lance 8).
	Files []IndexFile
	// BaseID is a base path when HasBase. In a clone or branch it can be the wrong
	// one: the library sets the newest base on every entry, wherever the files are.
	BaseID  uint32
	HasBase bool
	// DetailsType is the last part of the details' type URL
	// ("BTreeIndexDetails"), Details its message; empty before Lance 0.19.
	DetailsType string
	Details     []byte
	// Version of the index format; nil when not recorded.
	Version *int32
	// FragmentBitmap is a portable Roaring bitmap of the covered fragments; empty
	// when the coverage is unknown.
	FragmentBitmap []byte
	// Raw is the IndexMetadata message. It must not be changed.
	Raw []byte

	external  *ExternalFile // of FragReuseIndex
	fieldType string        // logical type of the first field
}

// Indices streams the index entries.
func (m *Manifest) Indices() iter.Seq2[Index, error] {
	return func(yield func(Index, error) bool) {
		var types map[int32]string
		for b, err := range messages(m.indexSection, 1) {
			var x Index
			if err == nil {
				err = x.parse(b)
			}
			if err != nil {
				yield(Index{}, err)
				return
			}
			if types == nil {
				types = m.fieldTypes()
			}
			if len(x.Fields) > 0 {
				x.fieldType = types[x.Fields[0]]
			}
			if !yield(x, nil) {
				return
			}
		}
	}
}

// fieldTypes maps field ids to logical types.
func (m *Manifest) fieldTypes() map[int32]string {
	types := map[int32]string{}
	for f, err := range m.Fields() {
		if err != nil {
			break // DecodeManifest has checked the schema
		}
		types[f.ID] = f.LogicalType
	}
	return types
}

func (x *Index) parse(b []byte) error {
	*x = Index{Raw: b}
	var url []byte
	err := fields(b, func(f wireField) error {
		switch f.num {
		case 1:
			return x.setUUID(f)
		case 2:
			return f.varints(func(v uint64) { x.Fields = append(x.Fields, int32(v)) })
		case 3:
			return f.string(&x.Name)
		case 4:
			return f.uint64(&x.DatasetVersion)
		case 5:
			return f.bytes(&x.FragmentBitmap)
		case 6:
			return x.setDetails(f, &url)
		case 7:
			x.Version = new(int32)
			return f.int32(x.Version)
		case 9:
			x.HasBase = true
			return f.uint32(&x.BaseID)
		case 10:
			return x.addFile(f)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if x.UUID == "" {
		return corrupt("index %.80q has no uuid", x.Name)
	}
	if x.Name == FragReuseIndex && x.DetailsType == "FragmentReuseIndexDetails" {
		return x.setExternal()
	}
	return nil
}

func (x *Index) setUUID(f wireField) error {
	if err := f.is(protowire.BytesType); err != nil {
		return err
	}
	return fields(f.body, func(f wireField) error {
		if f.num != 1 {
			return nil
		}
		if err := f.is(protowire.BytesType); err != nil {
			return err
		}
		if len(f.body) != 16 {
			return corrupt("index uuid of %d bytes", len(f.body))
		}
		x.UUID = formatUUID(f.body)
		return nil
	})
}

// formatUUID is the text of the 16 bytes of a UUID.
func formatUUID(b []byte) string {
	var t [36]byte
	for i, j := 0, 0; i < 16; i++ {
		switch i {
		case 4, 6, 8, 10:
			t[j] = '-'
			j++
		}
		hex.Encode(t[j:j+2], b[i:i+1])
		j += 2
	}
	return string(t[:])
}

func (x *Index) setDetails(f wireField, url *[]byte) error {
	if err := f.is(protowire.BytesType); err != nil {
		return err
	}
	err := fields(f.body, func(f wireField) error {
		switch f.num {
		case 1:
			return f.text(url)
		case 2:
			return f.bytes(&x.Details)
		}
		return nil
	})
	name := string(*url)
	name = name[strings.LastIndexByte(name, '/')+1:]
	x.DetailsType = name[strings.LastIndexByte(name, '.')+1:]
	return err
}

func (x *Index) addFile(f wireField) error {
	if err := f.is(protowire.BytesType); err != nil {
		return err
	}
	var file IndexFile
	var path []byte
	err := fields(f.body, func(f wireField) error {
		switch f.num {
		case 1:
			return f.text(&path)
		case 2:
			return f.count(&file.Size, "index file size")
		}
		return nil
	})
	if err != nil {
		return err
	}
	file.Path = string(path)
	x.Files = append(x.Files, file)
	return checkPath(path)
}

// setExternal finds the file that holds the details of a fragment reuse index.
func (x *Index) setExternal() error {
	return fields(x.Details, func(f wireField) error {
		if f.num != 2 {
			return nil
		}
		if err := f.is(protowire.BytesType); err != nil {
			return err
		}
		e, err := parseExternal(f.body)
		x.external = &e
		return err
	})
}

// MaintainedIndexes are the names of the indices that the table's MemWAL keeps up
// to date (MemWalIndexDetails.maintained_indexes, field 8), whose entries must
// stay; none without a MemWAL.
func (m *Manifest) MaintainedIndexes() ([]string, error) {
	var names []string
	for x, err := range m.Indices() {
		if err != nil {
			return nil, err
		}
		if x.Name != MemWALIndex {
			continue
		}
		for b, err := range messages(x.Details, 8) {
			if err != nil {
				return nil, err
			}
			names = append(names, string(b))
		}
	}
	return names, nil
}

// MergedGenerations are the newest generation of each MemWAL shard whose rows are in
// this version of the base table, by shard id. A shard that is not there has none.
//
// (details field 9: {1 shard {1 its 16 bytes}, 2 generation})
func (m *Manifest) MergedGenerations() (map[string]uint64, error) {
	out := map[string]uint64{}
	for x, err := range m.Indices() {
		if err != nil {
			return nil, err
		}
		if x.Name != MemWALIndex {
			continue
		}
		for b, err := range messages(x.Details, 9) {
			if err != nil {
				return nil, err
			}
			shard, generation, err := parseMerged(b)
			if err != nil {
				return nil, err
			}
			out[shard] = max(out[shard], generation)
		}
	}
	return out, nil
}

func parseMerged(b []byte) (shard string, generation uint64, err error) {
	err = fields(b, func(f wireField) error {
		switch f.num {
		case 1:
			if err := f.is(protowire.BytesType); err != nil {
				return err
			}
			for id, err := range messages(f.body, 1) {
				if err != nil {
					return err
				}
				if len(id) != 16 {
					return corrupt("the id of a merged shard has %d bytes", len(id))
				}
				shard = formatUUID(id)
			}
		case 2:
			return f.uint64(&generation)
		}
		return nil
	})
	return shard, generation, err
}
