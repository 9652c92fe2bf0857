package datafile

import (
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

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
	return "encoding of field number " + strconv.Itoa(int(num))
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
	valid, err := p.validity(f, some.bytes(1), n, depth)
	if err != nil {
		return nil, err
	}
	a, err := p.array(f, t, some.bytes(2), n, depth+1)
	if err != nil {
		return nil, err
	}
	b := *a
	if b.valid = valid; a.valid != nil {
		b.valid = and(a.valid, valid)
	}
	return &b, nil
}

// validity decodes one bit a value, 1 = valid.
func (p page20) validity(f *Field, enc []byte, n, depth int) ([]byte, error) {
	valid, err := p.array(f, parseType("bool", 0), enc, n, depth+1)
	if err != nil {
		return nil, err
	}
	if valid.form != formFixed {
		return nil, corrupt("validity that is itself null")
	}
	return valid.data, nil
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
	var some []byte // which positions are valid; nil when all are
	num, inner, err := choose(m.bytes(1), depth+1)
	for err == nil && num == enc20Nullable && !inner.has(3) && depth < maxDepth {
		depth++
		which := protowire.Number(1)
		if !inner.has(1) {
			which = 2
		}
		var box message
		if box, err = inner.sub(which); err != nil {
			break
		}
		if which == 2 { // so release 0.10.0 writes nulls of a declared dictionary
			if some, err = p.validity(f, box.bytes(1), n, depth); err != nil {
				break
			}
		}
		num, inner, err = choose(box.bytes(which), depth)
	}
	if err != nil {
		return nil, err
	}
	if num == enc20Nullable && inner.has(3) {
		return p.nullable(f, t, inner, n, depth)
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
	if err != nil {
		return nil, err
	}
	if a.valid = some; t.dict {
		return a, nil
	}
	valid := &bitmap{}
	for i, e := range a.idx {
		valid.add(e != 0)
		if e != 0 {
			a.idx[i] = e - 1
		}
	}
	if a.valid = valid.bytes(); some != nil {
		a.valid = and(a.valid, some)
	}
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
