package lance

import (
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field is one field of the schema, nested ones included.
type Field struct {
	ID int32
	// ParentID is -1 at the top level.
	ParentID int32
	Name     string
	// LogicalType is "int64", "string", "fixed_size_list:float:16", "struct", …
	LogicalType   string
	Nullable      bool
	ExtensionName string
	// Raw is the Field message. It must not be changed.
	Raw []byte
}

// Meta finds a key of the field's metadata.
func (f Field) Meta(key string) (string, bool) {
	for k, v := range f.Metadata() {
		if k == key {
			return v, true
		}
	}
	return "", false
}

// Metadata yields the field's metadata.
func (f Field) Metadata() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for b, err := range messages(f.Raw, 10) {
			if err != nil {
				return // Fields has checked it
			}
			k, v, err := wireField{typ: protowire.BytesType, body: b}.mapEntry()
			if err != nil || !yield(string(k), string(v)) {
				return
			}
		}
	}
}

func (f *Field) parse(b []byte) error {
	*f = Field{Raw: b}
	return fields(b, func(w wireField) error {
		switch w.num {
		case 2:
			return w.string(&f.Name)
		case 3:
			return w.int32(&f.ID)
		case 4:
			return w.int32(&f.ParentID)
		case 5:
			return w.string(&f.LogicalType)
		case 6:
			if err := w.is(protowire.VarintType); err != nil {
				return err
			}
			f.Nullable = w.v != 0
		case 9:
			return w.string(&f.ExtensionName)
		case 10:
			_, _, err := w.mapEntry()
			return err
		}
		return nil
	})
}

// Fields streams the schema depth first: a parent before its children.
func (m *Manifest) Fields() iter.Seq2[Field, error] {
	return func(yield func(Field, error) bool) {
		for b, err := range messages(m.msg, 1) {
			var f Field
			if err == nil {
				err = f.parse(b)
			}
			if err != nil {
				yield(Field{}, err)
				return
			}
			if !yield(f, nil) {
				return
			}
		}
	}
}

// blobV2 is the extension type whose larger values lie in sidecar files.
const blobV2 = "lance.blob.v2"

// surveyFields checks the schema and remembers its blob fields.
func (m *Manifest) surveyFields() error {
	for f, err := range m.Fields() {
		if err != nil {
			return err
		}
		if ext, _ := f.Meta("ARROW:extension:name"); ext == blobV2 || f.ExtensionName == blobV2 {
			if m.blobFields == nil {
				m.blobFields = map[int32]struct{}{}
			}
			m.blobFields[f.ID] = struct{}{}
		}
	}
	return nil
}

// holdsBlobs reports whether a data file holds a blob field in a format that
// keeps values beside the file: writers of formats before 2.2 store the same
// field as an ordinary struct.
func (m *Manifest) holdsBlobs(d *DataFile) bool {
	if len(m.blobFields) == 0 || d.Major < 2 || d.Major == 2 && d.Minor < 2 {
		return false
	}
	for _, id := range d.Fields {
		if _, ok := m.blobFields[id]; ok {
			return true
		}
	}
	return false
}
