package datafile

import (
	"strings"
)

// maxDepth is how deep fields and encodings may nest.
const maxDepth = 16

// maxFields is how many fields of a schema are believed.
const maxFields = 1 << 20

// Blob says how a field keeps large values outside of its pages.
type Blob uint8

// The kinds of blob storage.
const (
	NotBlob Blob = iota
	BlobV1       // a descriptor of position and size, in files 2.0 and 2.1
	BlobV2       // a descriptor with a kind, in files 2.2 and later
)

// Field is one field of a schema. A caller of [File.Read] may make its own, with
// other names, column numbers and fewer children, as a table's manifest says.
type Field struct {
	// ID is the field id that a table's manifest knows it by; -1 for the parts of
	// a blob's descriptor.
	ID   int32
	Name string
	// LogicalType is Lance's own name of the type: "int64", "string",
	// "timestamp:us:UTC", "list", "fixed_size_list:float:8", …
	LogicalType string
	Nullable    bool
	Metadata    map[string]string
	// Blob is what the file says of the field, not a table's schema: an old writer
	// stores a field of blob type as an ordinary struct.
	Blob Blob
	// Packed means a struct whose children share one file column.
	Packed   bool
	Children []*Field
	// Column is the file column, by the rule of the format: depth first, every
	// field in 2.0, only leaves (packed structs and blobs count as one) later; -1
	// for a field that owns none.
	Column int
}

// leaf says whether the field has no columns below its own.
func (f *Field) leaf() bool { return len(f.Children) == 0 || f.Packed || f.Blob != NotBlob }

// parseSchema reads the message Schema of a data file.
func parseSchema(b []byte) ([]*Field, error) {
	schema, err := parse(b)
	if err != nil {
		return nil, err
	}
	type node struct {
		field *Field
		depth int
	}
	var top []*Field
	byID := map[int32]node{}
	var last node // the last field that has an id
	n := 0
	for _, w := range schema {
		if w.num != 1 {
			continue
		}
		if n++; n > maxFields {
			return nil, corrupt("schema of more than %d fields", maxFields)
		}
		f, parent, err := parseField(w.body)
		if err != nil {
			return nil, err
		}
		up, ok := byID[parent]
		switch {
		case f.ID == -1 && last.field != nil:
			up, ok = last, true // parts of a blob's descriptor have neither id nor parent
		case parent == -1:
			top = append(top, f)
		case !ok:
			return nil, corrupt("field %q has the parent %d, which no field before it is", f.Name, parent)
		}
		if ok {
			up.field.Children = append(up.field.Children, f)
		}
		if up.depth+1 > maxDepth {
			return nil, unsupported("fields more than %d deep", maxDepth)
		}
		if f.ID >= 0 {
			last = node{f, up.depth + 1}
			if _, twice := byID[f.ID]; twice {
				return nil, corrupt("two fields have the id %d", f.ID)
			}
			byID[f.ID] = last
		}
	}
	return top, nil
}

func parseField(b []byte) (f *Field, parent int32, err error) {
	m, err := parse(b)
	if err != nil {
		return nil, 0, err
	}
	f = &Field{
		ID: int32(m.uint(3)), Name: m.text(2), LogicalType: m.text(5), Nullable: m.uint(6) != 0,
		Column: -1, Metadata: map[string]string{},
	}
	for _, w := range m {
		if w.num != 10 {
			continue
		}
		entry, err := parse(w.body)
		if err != nil {
			return nil, 0, err
		}
		f.Metadata[entry.text(1)] = entry.text(2)
	}
	isStruct := f.LogicalType == "struct"
	f.Packed = isStruct && (truth(f.Metadata["lance-encoding:packed"]) || truth(f.Metadata["packed"]))
	if truth(f.Metadata["lance-encoding:blob"]) {
		f.Blob = BlobV1
		if isStruct {
			f.Blob = BlobV2
		}
	}
	return f, int32(m.uint(4)), nil
}

func truth(s string) bool { return strings.EqualFold(s, "true") }

// numberColumns gives each field its file column, next being the first free one.
func numberColumns(fields []*Field, v20 bool, next int) int {
	for _, f := range fields {
		if v20 || f.leaf() {
			f.Column = next
			next++
		}
		if !f.leaf() {
			next = numberColumns(f.Children, v20, next)
		}
	}
	return next
}
