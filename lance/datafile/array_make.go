package datafile

import (
	"math"
)

// slice gives n values from value i on.
func (a *Array) slice(i, n int) *Array {
	if i < 0 || n < 0 || i+n > a.n {
		panic("datafile: slice out of range")
	}
	b := *a
	b.n = n
	if a.sel != nil {
		b.sel = a.sel[i : i+n : i+n]
	} else {
		b.off += i
	}
	return &b
}

// Take gives the values at these positions, in order; a position may be there
// more than once.
func (a *Array) Take(keep []int) *Array {
	b := *a
	b.n = len(keep)
	b.sel = make([]int, len(keep))
	for i, k := range keep {
		b.sel[i] = a.at(k)
	}
	return &b
}

// Nulls gives n nulls of a field that a file does not hold.
func Nulls(f *Field, n int) *Array { return nulls(f, n, 0) }

func nulls(f *Field, n, depth int) *Array {
	a := &Array{typ: parseType(f.LogicalType, 0), blob: f.Blob, n: n}
	if depth > maxDepth {
		return a
	}
	switch a.typ.kind {
	case kindStruct:
		for _, c := range f.Children {
			a.names = append(a.names, c.Name)
			a.kids = append(a.kids, nulls(c, n, depth+1))
		}
	case kindList:
		if len(f.Children) > 0 {
			a.items = nulls(f.Children[0], 0, depth+1)
		}
	}
	return a
}

// builder collects values of one physical kind: of a fixed width, or of any.
type builder struct {
	limit int // bytes that it may grow to
	n     int
	bits  int // 0: of any width
	data  []byte
	offs  []uint32 // n+1 of them, when bits is 0
	valid *bitmap  // of the items of a fixed size list; nil when there is none
}

func newBuilder(bits, limit int) *builder {
	b := &builder{bits: bits, limit: min(limit, math.MaxUint32)}
	if bits == 0 {
		b.offs = []uint32{0}
	}
	return b
}

// room says whether n more bytes fit.
func (b *builder) room(n int) error {
	if n < 0 || n > b.limit-len(b.data) {
		return corrupt("a page that decodes to more than %d bytes", b.limit)
	}
	return nil
}

// add appends n values of fixed width; of one bit each, data starts on a byte.
func (b *builder) add(data []byte, n int) error {
	if b.bits == 0 {
		return corrupt("values of a fixed width where any is due")
	}
	need := (n*b.bits + 7) / 8
	if len(data) < need {
		return corrupt("%d values of %d bits in %d bytes", n, b.bits, len(data))
	}
	if err := b.room(need); err != nil {
		return err
	}
	if b.bits%8 == 0 || b.n*b.bits%8 == 0 {
		b.data = append(b.data, data[:need]...)
	} else {
		at := b.n * b.bits
		for i := range n * b.bits {
			if (at+i)/8 == len(b.data) {
				b.data = append(b.data, 0)
			}
			m := byte(1) << ((at + i) & 7)
			b.data[(at+i)/8] &^= m
			if bit(data, i) {
				b.data[(at+i)/8] |= m
			}
		}
	}
	b.n += n
	return nil
}

// addVar appends one value of any width.
func (b *builder) addVar(v []byte) error {
	if err := b.room(len(v)); err != nil {
		return err
	}
	b.data = append(b.data, v...)
	b.end()
	return nil
}

// end closes the value whose bytes have been appended to data.
func (b *builder) end() {
	b.n++
	b.offs = append(b.offs, uint32(len(b.data)))
}

// array gives the values as an Array of a type, or an error when they are not
// of that type.
func (b *builder) array(t *logical) (*Array, error) {
	a := &Array{typ: t, n: b.n, data: b.data, bits: b.bits}
	switch {
	case t.kind == kindBytes && b.bits == 0:
		a.form, a.offs = formVar, b.offs
		return a, nil
	case b.bits == 0 || t.bits != b.bits || t.kind == kindUnknown:
		return nil, corrupt("values of %s in pages of %d bits a value", t.name, b.bits)
	case t.kind == kindFixedList:
		items := b.n * t.dim
		a.form, a.dim = formFixedList, t.dim
		a.items = flat(t.item, b.data, items)
		a.items.valid = b.valid.bytes()
		a.data = nil
		return a, nil
	}
	return flat(t, b.data, b.n), nil
}

// flat makes an Array of n values that lie behind each other.
func flat(t *logical, data []byte, n int) *Array {
	if t.kind == kindFixedList {
		return &Array{typ: t, form: formFixedList, n: n, dim: t.dim, items: flat(t.item, data, n*t.dim)}
	}
	a := &Array{typ: t, form: formFixed, n: n, data: data, bits: t.bits}
	if t.bits%8 == 0 {
		a.stride = t.bits / 8
	}
	return a
}

// bitmap is a growing list of bits.
type bitmap struct {
	b    []byte
	n    int
	zero bool // one of them is 0
}

func (m *bitmap) add(v bool) {
	if m.n&7 == 0 {
		m.b = append(m.b, 0)
	}
	if v {
		m.b[m.n>>3] |= 1 << (m.n & 7)
	} else {
		m.zero = true
	}
	m.n++
}

// bytes gives the bits, or nil when all are 1.
func (m *bitmap) bytes() []byte {
	if m == nil || !m.zero {
		return nil
	}
	return m.b
}

// Descriptor says where the value of a blob is. A value of Size 0 with Null set
// is null, with Empty set empty, and otherwise (external) of a size that only the
// store knows.
type Descriptor struct {
	Kind           uint8 // 0 inline, 1 packed, 2 dedicated, 3 external
	Position, Size uint64
	// ID is the number of the sidecar for packed and dedicated values, of the base
	// path (0: none) for external ones.
	ID uint32
	// URI of an external value.
	URI         string
	Null, Empty bool
}

// Blob says how the field keeps its values.
func (a *Array) Blob() Blob { return a.blob }

// Descriptor gives where blob i is; ok is false when the field is no blob.
// Inline values (and all of [BlobV1]) lie in the data file itself. Some writers
// store a null as a descriptor of zeros: it comes out as Empty, and there is
// nothing to fetch either way.
func (a *Array) Descriptor(i int) (d Descriptor, ok bool) {
	if a.blob == NotBlob {
		return d, false
	}
	if a.Null(i) {
		return Descriptor{Null: true}, true
	}
	p := a.at(i)
	part := func(k int) uint64 {
		if k >= len(a.kids) {
			return 0
		}
		w, _ := a.kids[k].number(p)
		return w
	}
	if a.blob == BlobV1 {
		d.Position, d.Size = part(0), part(1)
		d.Null = d.Size == 0 && d.Position != 0
		d.Empty = d.Size == 0 && d.Position == 0
		return d, true
	}
	if len(a.kids) != len(blobParts) {
		return d, false
	}
	if a.kids[0].Null(p) {
		return Descriptor{Null: true}, true
	}
	d.Kind, d.Position, d.Size, d.ID = uint8(part(0)), part(1), part(2), uint32(part(3))
	d.URI = a.kids[4].String(p)
	d.Empty = d.Size == 0 && d.URI == ""
	return d, true
}

// blobParts are the parts of a descriptor in pages of [BlobV2].
var blobParts = []struct{ name, typ string }{
	{"kind", "uint8"}, {"position", "uint64"}, {"size", "uint64"}, {"blob_id", "uint32"}, {"blob_uri", "string"},
}
