package datafile

import (
	"errors"
	"io"
)

// open20 starts to read a field of a file of format 2.0, in which structs and
// lists have columns of their own. rows is how many values the column has.
func (r *reading) open20(f *Field, name string) (s stream, rows int64, err error) {
	t := parseType(f.LogicalType, 0)
	if !f.leaf() && t.kind == kindStruct {
		return r.openStruct20(f, name)
	}
	if f.Column < 0 {
		if t.kind == kindList {
			return nil, 0, at(unsupported("items that another file holds"), name, -1)
		}
		return &absent{field: f}, -1, nil
	}
	c, err := r.file.column(r.ctx, f.Column)
	if err != nil {
		return nil, 0, at(err, name, -1)
	}
	own := r.file.own(f)
	decode := func(p page) (*Array, error) { return r.page20(own, p) }
	if t.kind == kindList {
		items, _, err := r.open20(f.Children[0], name+"."+f.Children[0].Name)
		if err != nil {
			return nil, 0, err
		}
		decode = func(p page) (*Array, error) { return r.list20(f, p, items) }
	}
	return &paged{pages: c.pages, decode: func(i int) (*Array, error) {
		a, err := decode(c.pages[i])
		if err == nil && int64(a.n) != c.pages[i].rows {
			err = corrupt("%d values instead of %d", a.n, c.pages[i].rows)
		}
		if err != nil {
			return nil, at(err, name, i)
		}
		return a, nil
	}}, c.rows, nil
}

func (r *reading) openStruct20(f *Field, name string) (stream, int64, error) {
	s := &struct20{field: f}
	rows := int64(-1)
	for _, c := range f.Children {
		kid, n, err := r.open20(c, name+"."+c.Name)
		if err != nil {
			return nil, 0, err
		}
		if n >= 0 && rows >= 0 && n != rows {
			return nil, 0, at(corrupt("a struct with children of %d and %d values", rows, n), name, -1)
		}
		rows = max(rows, n)
		s.kids = append(s.kids, kid)
	}
	return s, rows, nil
}

// absent streams nulls without an end.
type absent struct{ field *Field }

func (s *absent) avail() (int, error)        { return batchRows, nil }
func (s *absent) take(n int) (*Array, error) { return Nulls(s.field, n), nil }

// struct20 streams a struct, whose children's pages do not line up. Format 2.0
// does not keep which structs are null.
type struct20 struct {
	field *Field
	kids  []stream
}

func (s *struct20) avail() (int, error) {
	n := batchRows
	for _, k := range s.kids {
		have, err := k.avail()
		if err != nil {
			return 0, err
		}
		n = min(n, have)
	}
	return n, nil
}

func (s *struct20) take(n int) (*Array, error) {
	a := &Array{typ: parseType(s.field.LogicalType, 0), form: formStruct, n: n}
	for i, k := range s.kids {
		kid, err := k.take(n)
		if err != nil {
			return nil, err
		}
		a.names, a.kids = append(a.names, s.field.Children[i].Name), append(a.kids, kid)
	}
	return a, nil
}

// Numbers of the encodings of format 2.0 in their message.
const (
	enc20Flat        = 1
	enc20Nullable    = 2
	enc20FixedList   = 3
	enc20List        = 4
	enc20Struct      = 5
	enc20Binary      = 6
	enc20Dictionary  = 7
	enc20Fsst        = 8
	enc20Packed      = 9
	enc20FixedBinary = 11
)

var names20 = map[int32]string{
	enc20Flat: "flat", enc20Nullable: "nullable", enc20FixedList: "fixed size list", enc20List: "list", enc20Struct: "struct",
	enc20Binary: "binary", enc20Dictionary: "dictionary", enc20Fsst: "fsst", enc20Packed: "packed struct", 10: "bitpacked",
	enc20FixedBinary: "fixed size binary", 12: "bitpacked for non-negative values", 13: "constant",
}

// page20 is one page of format 2.0 on its way.
type page20 struct {
	d    *decoder
	bufs [][]byte
}

// openPage20 opens the encoding of a page: which kind it is and what it says.
func (r *reading) openPage20(p page) (pg page20, enc []byte, err error) {
	url, enc, err := anyValue(p.encoding)
	if err != nil {
		return pg, nil, err
	}
	if url != "/lance.encodings.ArrayEncoding" {
		return pg, nil, unsupported("page of type %q in a file of format 2.0", url)
	}
	bufs, err := r.file.load(r.ctx, p.buffers)
	return page20{&r.dec, bufs}, enc, err
}

func (r *reading) page20(f *Field, p page) (*Array, error) {
	pg, enc, err := r.openPage20(p)
	if err != nil {
		return nil, err
	}
	a, err := pg.array(f, parseType(f.LogicalType, 0), enc, int(p.rows), 0)
	if err != nil {
		return nil, err
	}
	return a, a.checkEntries()
}

// choose opens an ArrayEncoding.
func choose(enc []byte, depth int) (num int32, m message, err error) {
	if depth > maxDepth {
		return 0, nil, unsupported("encodings more than %d deep", maxDepth)
	}
	outer, err := parse(enc)
	if err != nil {
		return 0, nil, err
	}
	if len(outer) == 0 {
		return 0, nil, corrupt("an encoding that says nothing")
	}
	last := outer[len(outer)-1]
	m, err = parse(last.body)
	return int32(last.num), m, err
}

// list20 decodes the offsets of a page of lists and takes their items.
func (r *reading) list20(f *Field, p page, items stream) (*Array, error) {
	pg, enc, err := r.openPage20(p)
	if err != nil {
		return nil, err
	}
	num, m, err := choose(enc, 0)
	if err != nil {
		return nil, err
	}
	if num != enc20List {
		return nil, unsupported("%s for a list", name20(num))
	}
	ends, err := pg.array(f, parseType("uint64", 0), m.bytes(1), int(p.rows), 1)
	if err != nil {
		return nil, err
	}
	adjustment, count := m.uint(2), m.uint(3)
	a, err := ranges(ends, adjustment, count)
	if err != nil {
		return nil, err
	}
	a.typ, a.form = parseType(f.LogicalType, 0), formList
	a.items, err = r.takeItems(f.Children[0], items, int(count))
	return a, err
}

// takeItems takes n values from a stream, however many pages they are in.
func (r *reading) takeItems(f *Field, s stream, n int) (*Array, error) {
	var got []*Array
	total := n
	for n > 0 {
		have, err := s.avail()
		if errors.Is(err, io.EOF) {
			return nil, corrupt("lists of %d items more than there are", n)
		}
		if err != nil {
			return nil, err
		}
		a, err := s.take(min(n, have))
		if err != nil {
			return nil, err
		}
		got = append(got, a)
		n -= a.n
	}
	if len(got) == 0 {
		return Nulls(f, 0), nil
	}
	if sum := int64(total); sum > maxItems && sum/8 > r.file.size {
		return nil, corrupt("%d items, more than the file can hold", sum)
	}
	return concat(got, 0)
}

// ranges makes offsets and validity out of where each value ends. A null has the
// adjustment added to its end.
func ranges(ends *Array, adjustment, limit uint64) (*Array, error) {
	if limit > maxDecoded {
		return nil, corrupt("a page of %d items or bytes", limit)
	}
	if err := ends.checkEntries(); err != nil {
		return nil, err
	}
	if ends.form == formNull {
		return nil, corrupt("offsets that are null")
	}
	a := &Array{n: ends.n, offs: make([]uint32, 1, ends.n+1)}
	valid := &bitmap{}
	prev := uint64(0)
	for i := range ends.n {
		end, ok := ends.Uint(i)
		if !ok {
			return nil, corrupt("an offset that is null")
		}
		null := adjustment != 0 && end >= adjustment
		if null {
			end -= adjustment
		}
		if end < prev || end > limit {
			return nil, corrupt("offset %d of %d after %d", end, limit, prev)
		}
		valid.add(!null)
		a.offs = append(a.offs, uint32(end))
		prev = end
	}
	a.valid = valid.bytes()
	return a, nil
}
