package datafile

import (
	"encoding/binary"
)

// leaf is what one page of format 2.1 or later decodes to: the values of a leaf
// and what tells the structs and lists around them.
type leaf struct {
	values   *Array
	layers   []uint64 // the leaf's own first, then what is around it
	rep, def []uint16 // nil when there are none
}

// The layers of a page.
const (
	layerValidItem = 1 + iota
	layerValidList
	layerNullItem
	layerNullList
	layerEmptyList
	layerNullEmptyList
)

func isList(layer uint64) bool { return layer != layerValidItem && layer != layerNullItem }

// codes is how many definition levels each layer has.
var codes = [...]int{layerValidItem: 0, layerValidList: 0, layerNullItem: 1, layerNullList: 1, layerEmptyList: 1, layerNullEmptyList: 2}

func parseLayers(m message, num int32) ([]uint64, error) {
	layers, err := m.uints(wireNumber(num))
	if err != nil {
		return nil, err
	}
	if len(layers) == 0 || len(layers) > maxDepth+2 {
		return nil, corrupt("a page of %d layers", len(layers))
	}
	for _, l := range layers {
		if l == 0 || l > layerNullEmptyList {
			return nil, unsupported("layer of kind %d", l)
		}
	}
	return layers, nil
}

// maxVisible is the highest definition level that has a place among the values.
func maxVisible(layers []uint64) (n int) {
	for _, l := range layers {
		if isList(l) {
			break
		}
		n += codes[l]
	}
	return n
}

// visible counts the levels that have a place among the values.
func visible(layers []uint64, def []uint16) (n int) {
	top := uint16(maxVisible(layers))
	for _, d := range def {
		if d <= top {
			n++
		}
	}
	return n
}

// layout decodes a page of format 2.1 or later, of which value holds the
// PageLayout.
func (d *decoder) layout(f *Field, value []byte, p page, bufs [][]byte, depth int) (*leaf, error) {
	if depth > 2 {
		return nil, unsupported("layouts within layouts")
	}
	m, err := parse(value)
	if err != nil {
		return nil, err
	}
	if len(m) == 0 {
		return nil, corrupt("a page without a layout")
	}
	choice := m[len(m)-1]
	body, err := parse(choice.body)
	if err != nil {
		return nil, err
	}
	switch choice.num {
	case 1:
		return d.miniBlock(f, body, p, bufs)
	case 2:
		return d.constant(f, body, p, bufs)
	case 3:
		return d.fullZip(f, body, bufs)
	case 4:
		inner, err := d.layout(f, body.bytes(1), p, bufs, depth+1)
		if err != nil {
			return nil, err
		}
		return blobLayout(f, body, inner)
	case 5:
		return nil, unsupported("sparse layout (file 2.3)")
	}
	return nil, unsupported("page layout of field number %d", choice.num)
}

// leafArray turns values of fixed or any width into those of a field.
func leafArray(f *Field, b *builder, e *encoding) (*Array, error) {
	if f.Blob == NotBlob && !f.Packed {
		return b.array(parseType(f.LogicalType, 0))
	}
	if e.kind != encPacked {
		return nil, unsupported("%s for a struct", e.name())
	}
	a := &Array{typ: parseType(f.LogicalType, 0), blob: f.Blob, form: formStruct, n: b.n}
	names, types, err := parts(f, len(e.parts))
	if err != nil {
		return nil, err
	}
	at := 0
	for i, part := range e.parts {
		if types[i].bits != part.bits {
			return nil, corrupt("%s of %d bits in a packed struct", types[i].name, part.bits)
		}
		a.kids = append(a.kids, strided(types[i], b.data, b.n, at, b.bits/8))
		at += part.bits / 8
	}
	a.names = names
	return a, nil
}

// strided makes an Array of values that lie in rows of stride bytes.
func strided(t *logical, data []byte, n, start, stride int) *Array {
	if t.kind != kindFixedList {
		return &Array{typ: t, form: formFixed, n: n, data: data, bits: t.bits, start: start, stride: stride}
	}
	own := make([]byte, 0, n*t.bits/8)
	for i := range n {
		own = append(own, data[start+i*stride:][:t.bits/8]...)
	}
	return flat(t, own, n)
}

// parts gives names and types of the n children of a packed struct or descriptor.
func parts(f *Field, n int) (names []string, types []*logical, err error) {
	switch {
	case f.Blob == BlobV2, f.Blob == BlobV1:
		known := blobParts
		if f.Blob == BlobV1 {
			known = blobParts[1:3]
		}
		if n != len(known) {
			return nil, nil, unsupported("blob descriptor of %d parts", n)
		}
		for _, p := range known {
			names, types = append(names, p.name), append(types, parseType(p.typ, 0))
		}
	case n != len(f.Children):
		return nil, nil, corrupt("packed struct of %d children with %d parts", len(f.Children), n)
	default:
		for _, c := range f.Children {
			names, types = append(names, c.Name), append(types, parseType(c.LogicalType, 0))
		}
	}
	return names, types, nil
}

// dictionary turns values that are positions in a dictionary into an Array.
func dictionary(b *builder, dict *Array) (*Array, error) {
	if b.bits != 8 && b.bits != 16 && b.bits != 32 && b.bits != 64 {
		return nil, corrupt("positions in a dictionary of %d bits", b.bits)
	}
	idx := make([]uint32, b.n)
	for i := range idx {
		idx[i] = uint32(min(loadWord(b.data, i, b.bits), 1<<32-1))
	}
	return &Array{typ: dict.typ, form: formDict, n: b.n, idx: idx, dict: dict}, nil
}

// checkEntries holds positions in a dictionary against it, and clears those of
// nulls, which may be anything.
func (a *Array) checkEntries() error {
	if a.form != formDict || a.idx == nil {
		return nil
	}
	for i, e := range a.idx {
		if int(e) < a.dict.n {
			continue
		}
		if a.valid == nil || bit(a.valid, i) {
			return corrupt("position %d in a dictionary of %d", e, a.dict.n)
		}
		a.idx[i] = 0
	}
	if a.dict.n == 0 {
		a.form = formNull
	}
	return nil
}

// blobLayout reads descriptors of position and size: size 0 and a position other
// than 0 tells levels instead.
func blobLayout(f *Field, body message, inner *leaf) (*leaf, error) {
	layers, err := parseLayers(body, 2)
	if err != nil {
		return nil, err
	}
	if f.Blob != BlobV1 || len(inner.values.kids) != 2 || inner.def != nil || inner.rep != nil {
		return nil, unsupported("blob layout of a field of %s", f.LogicalType)
	}
	n := inner.values.n
	out := &leaf{values: inner.values, layers: layers}
	position, size := inner.values.child(0), inner.values.child(1)
	for i := range n {
		p, _ := position.Uint(i)
		s, _ := size.Uint(i)
		if s != 0 || p == 0 {
			continue
		}
		if out.def == nil {
			out.def = make([]uint16, n)
		}
		if p&0xFFFF != 0 {
			return nil, unsupported("blobs in lists")
		}
		out.def[i] = uint16(p >> 16)
	}
	return out, nil
}

// constant decodes a page that holds one value, or nulls only.
func (d *decoder) constant(f *Field, m message, p page, bufs [][]byte) (out *leaf, err error) {
	out = &leaf{}
	if out.layers, err = parseLayers(m, 5); err != nil {
		return nil, err
	}
	inlineValue, value := m.has(6), m.bytes(6)
	levels := bufs
	if !inlineValue && (len(bufs) == 1 || len(bufs) == 3) {
		if value, err = bufferValue(bufs[0]); err != nil {
			return nil, err
		}
		levels = bufs[1:]
	}
	hasValue := inlineValue || len(levels) < len(bufs)
	if len(levels) == 2 {
		if out.rep, err = d.constantLevels(m, 7, 9, levels[0]); err != nil {
			return nil, err
		}
		if out.def, err = d.constantLevels(m, 8, 10, levels[1]); err != nil {
			return nil, err
		}
	} else if len(levels) != 0 {
		return nil, corrupt("a constant page of %d buffers", len(bufs))
	}
	n := int(p.rows)
	switch {
	case out.def != nil:
		n = visible(out.layers, out.def)
	case out.rep != nil:
		n = len(out.rep)
	}
	if hasValue {
		out.values, err = constantArray(f, value, n)
		return out, err
	}
	out.values = nulls(f, n, 0)
	return out, nil
}

func (d *decoder) constantLevels(m message, enc, count int32, buf []byte) ([]uint16, error) {
	if len(buf) == 0 {
		return nil, nil
	}
	if !m.has(wireNumber(enc)) {
		return words16(buf), nil
	}
	e, err := parseEncoding(m.bytes(wireNumber(enc)), 0)
	if err != nil {
		return nil, err
	}
	n := m.uint(wireNumber(count))
	if n > maxDecoded/2 {
		return nil, corrupt("%d levels", n)
	}
	return d.levels(e, buf, int(n))
}

// bufferValue reads a value kept as Arrow buffers: their number, their lengths,
// their bytes. The last one is the value itself; offsets come before it.
func bufferValue(b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, corrupt("a constant in %d bytes", len(b))
	}
	n := int(binary.LittleEndian.Uint32(b))
	if n == 0 || n > 2 || len(b) < 4+4*n {
		return nil, unsupported("a constant of %d buffers", n)
	}
	rest := b[4+4*n:]
	var v []byte
	for i := range n {
		l := int(binary.LittleEndian.Uint32(b[4+4*i:]))
		if l > len(rest) {
			return nil, corrupt("a constant of %d bytes in %d", l, len(rest))
		}
		v, rest = rest[:l:l], rest[l:]
	}
	return v, nil
}

// constantArray makes n times the same value.
func constantArray(f *Field, value []byte, n int) (*Array, error) {
	t := parseType(f.LogicalType, 0)
	if f.Blob != NotBlob || t.kind == kindStruct || t.kind == kindList {
		return nil, unsupported("constant of %s", f.LogicalType)
	}
	b := newBuilder(t.bits, maxDecoded)
	var err error
	if t.kind == kindBytes {
		err = b.addVar(value)
	} else {
		err = b.add(value, 1)
	}
	if err != nil {
		return nil, err
	}
	one, err := b.array(t)
	if err != nil {
		return nil, err
	}
	return &Array{typ: t, form: formDict, n: n, dict: one}, nil
}
