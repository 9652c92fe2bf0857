package datafile

import (
	"context"
	"errors"
	"io"
	"iter"
	"math"
	"strings"
)

// batchRows is how many rows a batch has at most.
const batchRows = 64 << 10

// Batch is some consecutive rows.
type Batch struct {
	FirstRow int64    // position of the first row in the file
	Rows     int      // how many
	Columns  []*Array // one a field that was asked for, in that order
}

// Read streams the given top-level fields in batches of at most 64 Ki rows, in row
// order; a batch also ends where a page of one of the columns does. Only pages of
// the columns asked for are read, each once, and at most one decoded page a column
// is held. A field may be a copy made by the caller, with other names, fewer
// children, or column numbers from a manifest; a leaf with column -1, and below no
// list, reads as nulls. Without fields the batches tell rows only.
//
// The first error ends the stream: an *[UnsupportedError], a *[CorruptError], or
// what the Reader or ctx gave.
func (f *File) Read(ctx context.Context, fields []*Field) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		r := reading{file: f, ctx: ctx}
		defer r.dec.close()
		streams := make([]stream, len(fields))
		for i, field := range fields {
			s, err := r.open(field)
			if err != nil {
				yield(nil, err)
				return
			}
			streams[i] = s
		}
		for row := int64(0); row < f.Rows; {
			b, err := r.batch(streams, row)
			if err != nil {
				yield(nil, err)
				return
			}
			row += int64(b.Rows)
			if !yield(b, nil) {
				return
			}
		}
	}
}

// reading is one run of Read.
type reading struct {
	file *File
	ctx  context.Context
	dec  decoder
}

func (r *reading) batch(streams []stream, row int64) (*Batch, error) {
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	n := int(min(batchRows, r.file.Rows-row))
	for _, s := range streams {
		have, err := s.avail()
		if errors.Is(err, io.EOF) {
			return nil, corrupt("a column ends at row %d of %d", row, r.file.Rows)
		}
		if err != nil {
			return nil, err
		}
		n = min(n, have)
	}
	b := &Batch{FirstRow: row, Rows: n}
	for _, s := range streams {
		a, err := s.take(n)
		if err != nil {
			return nil, err
		}
		b.Columns = append(b.Columns, a)
	}
	return b, nil
}

// stream gives the values of one field, some at a time.
type stream interface {
	// avail says how many values can be taken at once, at least 1; io.EOF after
	// the last.
	avail() (int, error)
	// take gives the next n values, n being at most what avail said.
	take(n int) (*Array, error)
}

// open starts to read a top-level field.
func (r *reading) open(f *Field) (stream, error) {
	if err := check(f, 1); err != nil {
		return nil, err
	}
	if r.file.Minor == 0 {
		s, rows, err := r.open20(f, f.Name)
		if err == nil && rows >= 0 && rows != r.file.Rows {
			err = at(corrupt("pages of %d rows where the file has %d", rows, r.file.Rows), f.Name, -1)
		}
		return s, err
	}
	s := &joined{field: f}
	err := r.leaves(s, f, nil)
	return s, err
}

// check holds a field against what can be read at all.
func check(f *Field, depth int) error {
	t := parseType(f.LogicalType, 0)
	switch {
	case depth > maxDepth:
		return at(unsupported("fields more than %d deep", maxDepth), f.Name, -1)
	case t.kind == kindUnknown:
		return at(unsupported("type %q", f.LogicalType), f.Name, -1)
	case f.Blob == BlobV2 || f.Packed || len(f.Children) == 0 && t.kind != kindStruct && t.kind != kindList:
		return nil
	case len(f.Children) == 0:
		return at(unsupported("%s without children", f.LogicalType), f.Name, -1)
	case t.kind == kindList && len(f.Children) != 1:
		return at(corrupt("a list of %d children", len(f.Children)), f.Name, -1)
	case t.kind != kindList && t.kind != kindStruct:
		return at(unsupported("%s with children", f.LogicalType), f.Name, -1)
	}
	names := map[string]bool{}
	for _, c := range f.Children {
		if names[c.Name] {
			return at(corrupt("two children of the name %q", c.Name), f.Name, -1)
		}
		names[c.Name] = true
		if err := check(c, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// leaves adds the leaf columns below a field of a file of format 2.1 or later to
// s. above are the fields around it, the top-level one last.
func (r *reading) leaves(s *joined, f *Field, above []*Field) error {
	path := append([]*Field{f}, above...)
	if !f.leaf() {
		for _, c := range f.Children {
			if err := r.leaves(s, c, path); err != nil {
				return err
			}
		}
		return nil
	}
	name := pathName(path)
	if f.Column < 0 {
		for _, p := range above {
			if parseType(p.LogicalType, 0).kind == kindList {
				return at(unsupported("items that another file holds"), name, -1)
			}
		}
		s.streams = append(s.streams, nil)
		return nil
	}
	c, err := r.file.column(r.ctx, f.Column)
	if err != nil {
		return at(err, name, -1)
	}
	if c.rows != r.file.Rows {
		return at(corrupt("pages of %d rows where the file has %d", c.rows, r.file.Rows), name, -1)
	}
	own := r.file.own(f)
	path[0] = own
	s.streams = append(s.streams, &paged{pages: c.pages, decode: func(i int) (*Array, error) {
		a, err := r.page21(path, c.pages[i])
		if err != nil {
			return nil, at(err, name, i)
		}
		return a, nil
	}})
	return nil
}

// own gives a packed struct as it is in the file, under the names of the caller:
// whoever prunes its children would change what its pages mean.
func (f *File) own(field *Field) *Field {
	stored := f.byID[field.ID]
	if !field.Packed || stored == nil || !stored.Packed {
		return field
	}
	out := *field
	out.Children = make([]*Field, len(stored.Children))
	for i, c := range stored.Children {
		out.Children[i] = c
		for _, mine := range field.Children {
			if mine.ID == c.ID && c.ID >= 0 {
				named := *c
				named.Name = mine.Name
				out.Children[i] = &named
			}
		}
	}
	return &out
}

// pathName gives the dotted name of a path, the top-level field first.
func pathName(path []*Field) string {
	names := make([]string, len(path))
	for i, f := range path {
		names[len(path)-1-i] = f.Name
	}
	return strings.Join(names, ".")
}

// page21 decodes a page of format 2.1 or later.
func (r *reading) page21(path []*Field, p page) (*Array, error) {
	url, value, err := anyValue(p.encoding)
	if err != nil {
		return nil, err
	}
	if url != "/lance.encodings21.PageLayout" {
		return nil, unsupported("page of type %q in a file of format 2.%d", url, r.file.Minor)
	}
	bufs, err := r.file.load(r.ctx, p.buffers)
	if err != nil {
		return nil, err
	}
	l, err := r.dec.layout(path[0], value, p, bufs, 0)
	if err != nil {
		return nil, err
	}
	return l.shape(path, int(p.rows))
}

// paged streams pages of one column.
type paged struct {
	pages  []page
	decode func(i int) (*Array, error)
	next   int
	cur    *Array
}

func (s *paged) avail() (int, error) {
	for s.cur == nil || s.cur.n == 0 {
		if s.next == len(s.pages) {
			return 0, io.EOF
		}
		i := s.next
		s.next++
		s.cur = nil // before the next one is there
		if s.pages[i].rows == 0 {
			continue
		}
		a, err := s.decode(i)
		if err != nil {
			return 0, err
		}
		s.cur = a
	}
	return s.cur.n, nil
}

func (s *paged) take(n int) (*Array, error) {
	a := s.cur.slice(0, n)
	s.cur = s.cur.slice(n, s.cur.n-n)
	return a, nil
}

// joined streams a field of several leaf columns, whose pages do not line up.
type joined struct {
	field   *Field
	streams []stream // one a leaf, in order; nil for a leaf that the file does not hold
}

func (s *joined) avail() (int, error) {
	n := math.MaxInt
	for _, l := range s.streams {
		if l == nil {
			continue
		}
		have, err := l.avail()
		if err != nil {
			return 0, err
		}
		n = min(n, have)
	}
	return n, nil
}

func (s *joined) take(n int) (*Array, error) {
	taken := make([]*Array, len(s.streams))
	for i, l := range s.streams {
		if l == nil {
			continue
		}
		a, err := l.take(n)
		if err != nil {
			return nil, err
		}
		taken[i] = a
	}
	a, _, err := join(s.field, taken, n)
	if err != nil {
		return nil, at(err, s.field.Name, -1)
	}
	return a, nil
}

// join makes one array of a field out of those of its leaves, each of which has
// the structs and lists around it. It gives the leaves that it has not used.
func join(f *Field, leaves []*Array, n int) (*Array, []*Array, error) {
	if f.leaf() {
		a := leaves[0]
		if a == nil {
			a = Nulls(f, n)
		}
		return a, leaves[1:], nil
	}
	count := countLeaves(f)
	mine, rest := leaves[:count], leaves[count:]
	var a *Array
	var err error
	if parseType(f.LogicalType, 0).kind == kindList {
		a, err = joinLists(f, mine)
	} else {
		a, err = joinStructs(f, mine, n)
	}
	return a, rest, err
}

func countLeaves(f *Field) (n int) {
	if f.leaf() {
		return 1
	}
	for _, c := range f.Children {
		n += countLeaves(c)
	}
	return n
}

func joinStructs(f *Field, leaves []*Array, n int) (*Array, error) {
	var first *Array
	inner := make([]*Array, len(leaves))
	for i, l := range leaves {
		if l == nil {
			continue
		}
		if first == nil {
			first = l
		}
		inner[i] = l.child(0)
	}
	if first == nil {
		return Nulls(f, n), nil
	}
	out := &Array{typ: first.typ, form: formStruct, n: n}
	if first.valid != nil {
		valid := &bitmap{}
		for i := range n {
			valid.add(!first.Null(i))
		}
		out.valid = valid.bytes()
	}
	for _, c := range f.Children {
		var a *Array
		var err error
		if a, inner, err = join(c, inner, n); err != nil {
			return nil, err
		}
		out.names, out.kids = append(out.names, c.Name), append(out.kids, a)
	}
	return out, nil
}

// joinLists also holds the lists of the leaves against each other.
func joinLists(f *Field, leaves []*Array) (*Array, error) {
	if len(leaves) == 1 && f.Children[0].leaf() {
		return leaves[0], nil
	}
	first := leaves[0]
	from, to := first.window()
	inner := []*Array{first.items.slice(from, to-from)}
	for _, l := range leaves[1:] {
		lo, hi := l.window()
		if hi-lo != to-from {
			return nil, corrupt("lists of %d items in one column and %d in another", to-from, hi-lo)
		}
		for i := range first.n + 1 {
			if int(first.offs[first.off+i])-from != int(l.offs[l.off+i])-lo {
				return nil, corrupt("lists that differ in length between columns")
			}
		}
		inner = append(inner, l.items.slice(lo, hi-lo))
	}
	items, _, err := join(f.Children[0], inner, to-from)
	if err != nil {
		return nil, err
	}
	out := &Array{typ: first.typ, form: formList, n: first.n, items: items, offs: make([]uint32, first.n+1)}
	for i := range out.offs {
		out.offs[i] = first.offs[first.off+i] - uint32(from)
	}
	if first.valid != nil {
		valid := &bitmap{}
		for i := range out.n {
			valid.add(!first.Null(i))
		}
		out.valid = valid.bytes()
	}
	return out, nil
}

// window gives the range of items of a whole array of lists.
func (a *Array) window() (from, to int) { return int(a.offs[a.off]), int(a.offs[a.off+a.n]) }
