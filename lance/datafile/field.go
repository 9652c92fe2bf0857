package datafile

// Blob says how a field keeps large values outside of its pages.
type Blob uint8

// The kinds of blob storage.
const (
	NotBlob Blob = iota
	BlobV1       // a descriptor of position and size, in files 2.0 and 2.1
	BlobV2       // a descriptor with a kind, in files 2.2 and later
)

// Field is one field of a schema.
type Field struct {
	ID          int32
	Name        string
	LogicalType string
	Nullable    bool
	Metadata    map[string]string
	Blob        Blob
	Packed      bool // a struct whose children share one file column
	Children    []*Field
	Column      int // file column; -1 when the field owns none
}
