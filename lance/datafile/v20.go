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

// array decodes n values of type t.
func (p page20) array(f *Field, t *logical, enc []byte, n, depth int) (*Array, error) {
	num, m, err := choose(enc, depth)
	if err != nil {
		return nil, err
	}
	switch num {
	case enc20Flat:
		return p.flat(t, m, n)
	case enc20Nullable:
		return p.nullable(f, t, m, n, depth)
	case enc20FixedList:
		if t.kind != kindFixedList || m.uint(1) != uint64(t.dim) || n > maxDecoded/max(1, t.dim) {
			return nil, corrupt("lists of %d items for %s", m.uint(1), t.name)
		}
		items, err := p.array(f, t.item, m.bytes(2), n*t.dim, depth+1)
		if err != nil {
			return nil, err
		}
		if err := items.checkEntries(); err != nil {
			return nil, err
		}
		return &Array{typ: t, form: formFixedList, n: n, dim: t.dim, items: items}, nil
	case enc20Binary, enc20Fsst:
		return p.binary(f, t, num, m, n, depth)
	case enc20Dictionary:
		return p.dictionary(f, t, m, n, depth)
	case enc20Packed:
		return p.packed(f, m, n, depth)
	case enc20FixedBinary:
		if t.kind != kindFixedBytes || m.uint(2) != uint64(t.bits/8) {
			return nil, corrupt("values of %d bytes for %s", m.uint(2), t.name)
		}
		raw, err := p.raw(m.bytes(1), depth+1)
		if err != nil {
			return nil, err
		}
		return p.values(t, raw, n)
	}
	return nil, unsupported("%s", name20(num))
}

func name20(num int32) string {
	if n := names20[num]; n != "" {
		return n
	}
	return "encoding of field number " + itoa(num)
}

// buffer gives what a Buffer message names, decompressed as a flat encoding says.
func (p page20) buffer(ref, compression []byte) ([]byte, error) {
	m, err := parse(ref)
	if err != nil {
		return nil, err
	}
	if where := m.uint(2); where != 0 {
		return nil, unsupported("a buffer outside of the page (%d)", where)
	}
	i := m.uint(1)
	if i >= uint64(len(p.bufs)) {
		return nil, corrupt("buffer %d of %d", i, len(p.bufs))
	}
	b := p.bufs[i]
	c, err := parse(compression)
	if err != nil {
		return nil, err
	}
	switch scheme := c.text(1); scheme {
	case "", "none":
		return b, nil
	case "zstd":
		return p.d.decompress(schemeZstd, b)
	case "lz4":
		return p.d.decompress(schemeLz4, b)
	default:
		return nil, unsupported("compression %q", scheme)
	}
}

func (p page20) flat(t *logical, m message, n int) (*Array, error) {
	if bits := m.uint(1); bits != uint64(t.bits) || bits == 0 {
		return nil, corrupt("values of %d bits for %s", bits, t.name)
	}
	raw, err := p.buffer(m.bytes(2), m.bytes(3))
	if err != nil {
		return nil, err
	}
	return p.values(t, raw, n)
}

func (p page20) values(t *logical, raw []byte, n int) (*Array, error) {
	if t.bits == 0 || n > 8*len(raw)/t.bits {
		return nil, corrupt("%d values of %d bits in %d bytes", n, t.bits, len(raw))
	}
	return flat(t, raw, n), nil
}

func (p page20) nullable(f *Field, t *logical, m message, n, depth int) (*Array, error) {
	if m.has(3) {
		a := nulls(f, n, 0)
		a.typ = t
		return a, nil
	}
	if inner := m.bytes(1); m.has(1) {
		box, err := parse(inner)
		if err != nil {
			return nil, err
		}
		return p.array(f, t, box.bytes(1), n, depth+1)
	}
	some, err := m.sub(2)
	if err != nil {
		return nil, err
	}
	valid, err := p.array(f, parseType("bool", 0), some.bytes(1), n, depth+1)
	if err != nil {
		return nil, err
	}
	if valid.form != formFixed {
		return nil, corrupt("validity that is itself null")
	}
	a, err := p.array(f, t, some.bytes(2), n, depth+1)
	if err != nil {
		return nil, err
	}
	b := *a
	if b.valid = valid.data; a.valid != nil {
		b.valid = and(a.valid, valid.data)
	}
	return &b, nil
}

// raw gives all bytes of a flat encoding of bytes, of which there may be any number.
func (p page20) raw(enc []byte, depth int) ([]byte, error) {
	num, m, err := choose(enc, depth)
	if err != nil {
		return nil, err
	}
	if num == enc20Nullable && m.has(1) {
		box, err := m.sub(1)
		if err != nil {
			return nil, err
		}
		return p.raw(box.bytes(1), depth+1)
	}
	if num != enc20Flat || m.uint(1) != 8 {
		return nil, unsupported("%s for the bytes of values", name20(num))
	}
	return p.buffer(m.bytes(2), m.bytes(3))
}

func (p page20) binary(f *Field, t *logical, num int32, m message, n, depth int) (*Array, error) {
	if t.kind != kindBytes {
		return nil, corrupt("values of any width for %s", t.name)
	}
	if num == enc20Fsst {
		raw, err := p.array(f, t, m.bytes(1), n, depth+1)
		if err != nil {
			return nil, err
		}
		if raw.form != formVar {
			return nil, unsupported("fsst of other than binary")
		}
		b := newBuilder(0, maxDecoded)
		e := &encoding{symbols: m.bytes(2)}
		if err := addFsst(b, e, &builder{n: n, data: raw.data, offs: raw.offs}); err != nil {
			return nil, err
		}
		a, err := b.array(t)
		if err == nil {
			a.valid = raw.valid
		}
		return a, err
	}
	ends, err := p.array(f, parseType("uint64", 0), m.bytes(1), n, depth+1)
	if err != nil {
		return nil, err
	}
	data, err := p.raw(m.bytes(2), depth+1)
	if err != nil {
		return nil, err
	}
	a, err := ranges(ends, m.uint(3), uint64(len(data)))
	if err != nil {
		return nil, err
	}
	a.typ, a.form, a.data = t, formVar, data
	return a, nil
}

// dictionary decodes positions: from 1 on, 0 being null, unless the column is
// declared to be a dictionary.
func (p page20) dictionary(f *Field, t *logical, m message, n, depth int) (*Array, error) {
	num, inner, err := choose(m.bytes(1), depth+1)
	for err == nil && num == enc20Nullable && inner.has(1) && depth < maxDepth {
		var box message
		if box, err = inner.sub(1); err == nil {
			depth++
			num, inner, err = choose(box.bytes(1), depth)
		}
	}
	if err != nil {
		return nil, err
	}
	bits := inner.uint(1)
	if num != enc20Flat || bits != 8 && bits != 16 && bits != 32 && bits != 64 {
		return nil, unsupported("%s of %d bits for positions in a dictionary", name20(num), bits)
	}
	idx, err := p.flat(&logical{name: "positions", kind: kindUint, bits: int(bits)}, inner, n)
	if err != nil {
		return nil, err
	}
	count := m.uint(3)
	if count > maxDecoded {
		return nil, corrupt("a dictionary of %d", count)
	}
	dict, err := p.array(f, t, m.bytes(2), int(count), depth+1)
	if err != nil {
		return nil, err
	}
	if err := dict.checkEntries(); err != nil {
		return nil, err
	}
	b := &builder{n: n, bits: int(bits), data: idx.data}
	a, err := dictionary(b, dict)
	if err != nil || t.dict {
		return a, err
	}
	valid := &bitmap{}
	for i, e := range a.idx {
		valid.add(e != 0)
		if e != 0 {
			a.idx[i] = e - 1
		}
	}
	a.valid = valid.bytes()
	return a, nil
}

// packed decodes structs that lie row by row in one buffer.
func (p page20) packed(f *Field, m message, n, depth int) (*Array, error) {
	e := &encoding{kind: encPacked}
	for _, w := range m {
		if w.num != 1 {
			continue
		}
		bits, err := width20(w.body, depth+1)
		if err != nil {
			return nil, err
		}
		e.parts = append(e.parts, structPart{bits: bits})
		if e.bits += bits; e.bits > maxWidth {
			return nil, corrupt("a packed struct %d wide", e.bits)
		}
	}
	raw, err := p.buffer(m.bytes(2), nil)
	if err != nil {
		return nil, err
	}
	if e.bits == 0 || n > 8*len(raw)/e.bits {
		return nil, corrupt("%d structs of %d bits in %d bytes", n, e.bits, len(raw))
	}
	if f.Blob == NotBlob && !f.Packed {
		return nil, corrupt("a packed struct for %s", f.LogicalType)
	}
	a, err := leafArray(f, &builder{n: n, bits: e.bits, data: raw}, e)
	if err != nil || f.Blob == NotBlob {
		return a, err
	}
	valid := &bitmap{}
	for i := range n {
		position, size := a.kids[0].word(i), a.kids[1].word(i)
		valid.add(size != 0 || position == 0)
	}
	a.valid = valid.bytes()
	return a, nil
}

// width20 says how wide the values of a child of a packed struct are.
func width20(enc []byte, depth int) (int, error) {
	num, m, err := choose(enc, depth)
	if err != nil {
		return 0, err
	}
	switch {
	case num == enc20Flat && m.uint(1)%8 == 0 && m.uint(1) > 0 && m.uint(1) <= maxWidth:
		return int(m.uint(1)), nil
	case num == enc20Nullable && m.has(1):
		box, err := m.sub(1)
		if err != nil {
			return 0, err
		}
		return width20(box.bytes(1), depth+1)
	case num == enc20FixedList:
		w, err := width20(m.bytes(2), depth+1)
		if err != nil || w == 0 || m.uint(1) > uint64(maxWidth/w) {
			return 0, corrupt("a list of %d items in a packed struct", m.uint(1))
		}
		return w * int(m.uint(1)), nil
	}
	return 0, unsupported("%s in a packed struct", name20(num))
}
