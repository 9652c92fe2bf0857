package lance

import (
	"fmt"
	"strings"

	"github.com/rocketkeep/reconcile/lance/datafile"
)

// schema is the fields of a version as a tree.
type schema struct {
	top []*schemaField
}

type schemaField struct {
	Field
	children []*schemaField
}

func (m *Manifest) schema() (*schema, error) {
	s := &schema{}
	byID := map[int32]*schemaField{}
	for f, err := range m.Fields() {
		if err != nil {
			return nil, err
		}
		n := &schemaField{Field: f}
		if f.ParentID == -1 {
			s.top = append(s.top, n)
		} else if up := byID[f.ParentID]; up != nil {
			up.children = append(up.children, n)
		} else {
			return nil, corrupt("field %.80q has the parent %d, which no field before it is", f.Name, f.ParentID)
		}
		if byID[f.ID] != nil {
			return nil, corrupt("two fields have the id %d", f.ID)
		}
		byID[f.ID] = n
	}
	return s, nil
}

// target is a column that was asked for: a field of the top level, then down
// through structs to what is meant.
type target struct {
	name string
	path []*schemaField
}

// find finds a column by its dotted name.
func (s *schema) find(name string) (target, error) {
	t := target{name: name}
	if err := t.descend(s.top, name); err != nil {
		return t, fmt.Errorf("column %.200q: %w", name, err)
	}
	return t, nil
}

func (t *target) descend(fields []*schemaField, rest string) error {
	for _, f := range fields {
		if f.Name == rest {
			t.path = append(t.path, f)
			return nil
		}
	}
	err := ErrNoColumn
	for _, f := range fields {
		below, ok := strings.CutPrefix(rest, f.Name+".")
		if !ok {
			continue
		}
		if f.LogicalType != "struct" || f.isBlob() {
			err = fmt.Errorf("%.80q is no struct, whose children can be read alone (it is %.80q)", f.Name, f.kind())
			continue
		}
		before := t.path
		t.path = append(t.path, f)
		if inner := t.descend(f.children, below); inner == nil {
			return nil
		} else if err == ErrNoColumn {
			err = inner
		}
		t.path = before
	}
	return err
}

// isBlob reports whether values of the field may lie outside of the pages.
func (f *schemaField) isBlob() bool {
	if ext, _ := f.Meta("ARROW:extension:name"); ext == blobV2 || f.ExtensionName == blobV2 {
		return true
	}
	v, _ := f.Meta("lance-encoding:blob")
	return strings.EqualFold(v, "true")
}

func (f *schemaField) kind() string {
	if f.isBlob() {
		return "blob"
	}
	return f.LogicalType
}

// last is the field that is meant.
func (t target) last() *schemaField { return t.path[len(t.path)-1] }

// holds reports whether the field, or something in it, has an id of ids.
func (f *schemaField) holds(ids []int32) bool {
	for _, id := range ids {
		if f.has(id) {
			return true
		}
	}
	return false
}

func (f *schemaField) has(id int32) bool {
	if f.ID == id {
		return true
	}
	for _, c := range f.children {
		if c.has(id) {
			return true
		}
	}
	return false
}

// holder is the position of the data file that holds the column; -1 when none
// does. The error says that its fields lie in several, which cannot be put together.
func (t target) holder(f *Fragment) (int, error) {
	at := -1
	for i := range f.Files {
		if !t.last().holds(f.Files[i].Fields) {
			continue
		}
		if at >= 0 {
			return 0, &datafile.UnsupportedError{Column: t.name, Page: -1, Encoding: "a column that lies in several data files; name its fields one by one"}
		}
		at = i
	}
	return at, nil
}

// field is the column as a data file would describe it.
func (t target) field() *datafile.Field { return t.last().field() }

func (f *schemaField) field() *datafile.Field {
	d := &datafile.Field{ID: f.ID, Name: f.Name, LogicalType: f.LogicalType, Nullable: f.Nullable, Metadata: map[string]string{}, Column: -1}
	for k, v := range f.Metadata() {
		d.Metadata[k] = v
	}
	if f.isBlob() {
		d.Blob = datafile.BlobV1
		if f.LogicalType == "struct" {
			d.Blob = datafile.BlobV2
		}
		return d // the parts of its descriptor are no fields of the table
	}
	for _, c := range f.children {
		d.Children = append(d.Children, c.field())
	}
	return d
}

// in is what the column is in a data file that holds it: the field of the top
// level as the file's own schema describes it, pruned to what was asked for, with
// the names of this version and the file columns that the manifest records.
func (t target) in(file *datafile.File, d *DataFile) (*datafile.Field, error) {
	columns, err := columnsOf(d)
	if err != nil {
		return nil, err
	}
	top := file.Field(t.path[0].ID)
	if top == nil {
		return nil, corrupt("its schema lacks the field %d of column %.80q, which the manifest says it holds", t.path[0].ID, t.name)
	}
	return prune(top, t.path, columns)
}

// columnsOf maps field ids to file columns as the manifest records them; nil when
// it does not, and the file's own order counts.
func columnsOf(d *DataFile) (map[int32]int, error) {
	if len(d.ColumnIndices) == 0 {
		return nil, nil
	}
	if len(d.ColumnIndices) != len(d.Fields) {
		return nil, corrupt("the manifest records %d columns for its %d fields", len(d.ColumnIndices), len(d.Fields))
	}
	columns := make(map[int32]int, len(d.Fields))
	for i, id := range d.Fields {
		if id != tombstone {
			columns[id] = int(d.ColumnIndices[i])
		}
	}
	return columns, nil
}

// prune copies a field of a file down the path, and whole from its end on.
func prune(f *datafile.Field, path []*schemaField, columns map[int32]int) (*datafile.Field, error) {
	p := *f
	p.Name = path[0].Name
	if c, ok := columns[f.ID]; ok {
		p.Column = c
	}
	if f.Blob != datafile.NotBlob || f.Packed && len(f.Children) > 0 {
		return &p, nil // one file column; its children are parts of the values in it
	}
	wanted := path[0].children
	if len(path) > 1 {
		wanted = path[1:2]
	}
	p.Children = nil
	for _, w := range wanted {
		child := childByID(f, w.ID)
		if child == nil {
			return nil, &datafile.UnsupportedError{Column: path[0].Name, Page: -1, Encoding: fmt.Sprintf("a struct that was written without its field %.80q", w.Name)}
		}
		below := []*schemaField{w}
		if len(path) > 1 {
			below = path[1:]
		}
		c, err := prune(child, below, columns)
		if err != nil {
			return nil, err
		}
		p.Children = append(p.Children, c)
	}
	return &p, nil
}

func childByID(f *datafile.Field, id int32) *datafile.Field {
	for _, c := range f.Children {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// child goes down from the values of the top level to those that were asked for.
func (t target) child(values *datafile.Array) *datafile.Array {
	for _, f := range t.path[1:] {
		values = values.Child(f.Name)
	}
	return values
}
