package datafile

import (
	"encoding/binary"
	"math"
)

type form uint8

const (
	formNull      form = iota // every value is null
	formFixed                 // values of one width
	formVar                   // values between offsets
	formDict                  // positions in a dictionary
	formList                  // ranges of items between offsets
	formFixedList             // dim items each
	formStruct
)

// Array is the values of one field in some consecutive rows. Its methods may be
// called by several goroutines at once. What Bytes gives is part of the Array and
// must not be changed; it stays valid as long as anyone holds it. An index outside
// of 0..Len()-1 panics.
//
// The values lie where the page left them: an Array is a window of off..off+n, or
// a selection, of positions in the page.
type Array struct {
	typ  *logical
	blob Blob
	form form

	n, off int
	sel    []int  // positions, instead of off..off+n
	valid  []byte // one bit a position, 1 = valid; nil when none is null

	data          []byte // formFixed, formVar
	bits          int    // formFixed: width of a value
	start, stride int    // formFixed, in bytes; one bit a value when bits is 1 and stride 0
	offs          []uint32
	idx           []uint32 // formDict; nil means that all are the first
	dict          *Array
	items         *Array // formList, formFixedList
	dim           int
	names         []string
	kids          []*Array
}

// Len is the number of values, nulls included.
func (a *Array) Len() int { return a.n }

// Type is the logical type of the field, as in [Field].
func (a *Array) Type() string { return a.typ.name }

// at gives the position of value i.
func (a *Array) at(i int) int {
	if uint(i) >= uint(a.n) {
		panic("datafile: index out of range")
	}
	if a.sel != nil {
		return a.sel[i]
	}
	return a.off + i
}

func bit(b []byte, i int) bool { return b[i>>3]>>(i&7)&1 != 0 }

// nullAt says whether position p is null.
func (a *Array) nullAt(p int) bool {
	switch {
	case a.form == formNull, a.valid != nil && !bit(a.valid, p):
		return true
	case a.form == formDict:
		return a.dict.nullAt(a.entry(p))
	}
	return false
}

// entry gives the position in the dictionary of position p.
func (a *Array) entry(p int) int {
	if a.idx == nil {
		return a.dict.off
	}
	return a.dict.off + int(a.idx[p])
}

// Null says whether value i is null. A value of a struct that is null is null too
// (but format 2.0 does not keep which structs are null).
func (a *Array) Null(i int) bool { return a.nullAt(a.at(i)) }

// bytesAt gives the bytes at position p, whatever the type; not of one-bit values.
func (a *Array) bytesAt(p int) []byte {
	switch a.form {
	case formFixed:
		at := a.start + p*a.stride
		return a.data[at : at+a.bits/8 : at+a.bits/8]
	case formVar:
		from, to := a.offs[p], a.offs[p+1]
		return a.data[from:to:to]
	case formDict:
		return a.dict.bytesAt(a.entry(p))
	}
	return nil
}

// Bytes gives value i of a string, binary (of any or of fixed width), decimal or
// JSON field, or of a dictionary of those; nil when it is null, a blob, or of another
// type.
func (a *Array) Bytes(i int) []byte {
	p := a.at(i)
	if a.typ.kind != kindBytes && a.typ.kind != kindFixedBytes || a.blob != NotBlob || a.nullAt(p) {
		return nil
	}
	if b := a.bytesAt(p); b != nil {
		return b
	}
	return []byte{}
}

// String gives what Bytes gives, as a string.
func (a *Array) String(i int) string { return string(a.Bytes(i)) }

// word gives the bits at position p of a number.
func (a *Array) word(p int) uint64 {
	if a.form == formDict {
		return a.dict.word(a.entry(p))
	}
	if a.bits == 1 && a.stride == 0 {
		if bit(a.data, p) {
			return 1
		}
		return 0
	}
	b := a.data[a.start+p*a.stride:]
	switch a.bits {
	case 16:
		return uint64(binary.LittleEndian.Uint16(b))
	case 32:
		return uint64(binary.LittleEndian.Uint32(b))
	case 64:
		return binary.LittleEndian.Uint64(b)
	}
	return uint64(b[0])
}

// number gives value i as it is stored; ok is false for a null and for whatever
// is not a number.
func (a *Array) number(i int) (w uint64, ok bool) {
	p := a.at(i)
	switch a.typ.kind {
	case kindBool, kindInt, kindUint, kindFloat, kindBFloat:
		if !a.nullAt(p) {
			return a.word(p), true
		}
	}
	return 0, false
}

func signed(w uint64, bits int) int64 {
	shift := 64 - bits
	return int64(w<<shift) >> shift
}

// Int gives value i of an integer, date, time, timestamp, duration or bool (0 or
// 1) field in its own unit, or of a float field when it is a whole number that
// fits (clients in JavaScript write every number as a double). ok is false for a
// null, for what does not fit, and for other types.
func (a *Array) Int(i int) (v int64, ok bool) {
	w, ok := a.number(i)
	switch {
	case !ok:
		return 0, false
	case a.typ.kind == kindInt:
		return signed(w, a.typ.bits), true
	case a.typ.kind == kindUint, a.typ.kind == kindBool:
		return int64(w), w <= math.MaxInt64
	}
	f := a.float(w)
	if f != math.Trunc(f) || f < -(1<<63) || f >= 1<<63 { // NaN is no whole number either
		return 0, false
	}
	return int64(f), true
}

// Uint is like Int for values that are not negative.
func (a *Array) Uint(i int) (v uint64, ok bool) {
	w, ok := a.number(i)
	switch {
	case !ok:
		return 0, false
	case a.typ.kind == kindInt:
		s := signed(w, a.typ.bits)
		return uint64(s), s >= 0
	case a.typ.kind == kindUint, a.typ.kind == kindBool:
		return w, true
	}
	f := a.float(w)
	if f != math.Trunc(f) || f < 0 || f >= 1<<64 {
		return 0, false
	}
	return uint64(f), true
}

// Float gives value i of a float field, or of an integer field when a float64
// holds it exactly.
func (a *Array) Float(i int) (v float64, ok bool) {
	w, ok := a.number(i)
	switch {
	case !ok:
		return 0, false
	case a.typ.kind == kindInt:
		s := signed(w, a.typ.bits)
		f := float64(s)
		return f, f < 1<<63 && int64(f) == s
	case a.typ.kind == kindUint:
		f := float64(w)
		return f, f < 1<<64 && uint64(f) == w
	case a.typ.kind == kindBool:
		return 0, false
	}
	return a.float(w), true
}

// float reads the bits of a float of the array's type.
func (a *Array) float(w uint64) float64 {
	switch {
	case a.typ.kind == kindBFloat:
		return float64(math.Float32frombits(uint32(w) << 16))
	case a.typ.bits == 64:
		return math.Float64frombits(w)
	case a.typ.bits == 32:
		return float64(math.Float32frombits(uint32(w)))
	}
	return half(uint16(w))
}

// half reads a float of 16 bits.
func half(h uint16) float64 {
	sign, exp, frac := 1.0, int(h>>10&31), float64(h&1023)
	if h>>15 != 0 {
		sign = -1
	}
	switch {
	case exp == 31 && frac != 0:
		return math.NaN()
	case exp == 31:
		return math.Inf(int(sign))
	case exp == 0:
		return sign * math.Ldexp(frac, -24)
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}

// Bool gives value i of a bool field.
func (a *Array) Bool(i int) (v, ok bool) {
	if a.typ.kind != kindBool {
		return false, false
	}
	w, ok := a.number(i)
	return w != 0, ok
}

// List gives the items of list i, of any or of fixed size: lo..hi-1 of items.
// lo equals hi for a null and for what is no list.
func (a *Array) List(i int) (items *Array, lo, hi int) {
	p := a.at(i)
	switch {
	case a.nullAt(p):
	case a.form == formList:
		return a.items, int(a.offs[p]), int(a.offs[p+1])
	case a.form == formFixedList:
		return a.items, p * a.dim, (p + 1) * a.dim
	case a.form == formDict && a.typ.kind == kindFixedList:
		p = a.entry(p)
		return a.dict.items, p * a.dict.dim, (p + 1) * a.dict.dim
	}
	return a.noItems(), 0, 0
}

// Items gives the items that List's positions count in; never nil.
func (a *Array) Items() *Array {
	if a.form == formDict && a.dict.items != nil {
		return a.dict.items
	}
	return a.noItems()
}

func (a *Array) noItems() *Array {
	if a.items != nil {
		return a.items
	}
	t := a.typ.item
	if t == nil {
		t = &logical{}
	}
	return &Array{typ: t}
}

// Child gives the values of a struct's child, as many as the struct has; nil when
// it has none of that name or is no struct.
func (a *Array) Child(name string) *Array {
	for i, n := range a.names {
		if n == name {
			return a.child(i)
		}
	}
	return nil
}

// child gives the values of child i.
func (a *Array) child(i int) *Array {
	if a.form == formNull { // the kids are nulls too, of any number
		k := *a.kids[i]
		k.n, k.off, k.sel = a.n, 0, nil
		return &k
	}
	if a.sel != nil {
		return a.kids[i].Take(a.sel)
	}
	return a.kids[i].slice(a.off, a.n)
}

// Names gives the names of a struct's children, in order.
func (a *Array) Names() []string { return a.names }
