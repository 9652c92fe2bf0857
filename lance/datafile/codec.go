package datafile

import (
	"encoding/binary"
)

// mini decodes n values out of the buffers of one chunk of a mini-block page.
func (d *decoder) mini(b *builder, e *encoding, bufs [][]byte, n int) error {
	want := 1
	if e.kind == encRle || e.kind == encFixedList && e.nulls {
		want = 2
	}
	if len(bufs) < want {
		return corrupt("%s with %d value buffers", e.name(), len(bufs))
	}
	switch e.kind {
	case encFlat:
		return b.add(bufs[0], n)
	case encPacked:
		if e.inner.kind != encFlat {
			return unsupported("packed struct of %s", e.inner.name())
		}
		return b.add(bufs[0], n)
	case encVariable:
		return variable(b, bufs[0], e.bits/8, n, 0)
	case encFsst:
		raw := newBuilder(0, b.limit)
		if err := d.mini(raw, e.inner, bufs, n); err != nil {
			return err
		}
		return addFsst(b, e, raw)
	case encInline:
		return inline(b, e, bufs[0], n)
	case encOutOfLine:
		return outOfLine(b, e, bufs[0], n)
	case encRle:
		return d.rle(b, e, bufs[0], bufs[1], n)
	case encByteStream:
		return byteStreams(b, bufs[0], n)
	case encGeneral:
		raw, err := d.decompress(e.scheme, bufs[0])
		if err != nil {
			return err
		}
		return d.mini(b, e.inner, append([][]byte{raw}, bufs[1:]...), n)
	case encFixedList:
		return d.miniFixedList(b, e, bufs, n)
	}
	return unsupported("%s in a mini-block page", e.name())
}

func (d *decoder) miniFixedList(b *builder, e *encoding, bufs [][]byte, n int) error {
	if e.items == 0 || n > maxDecoded/e.items {
		return corrupt("%d lists of %d items", n, e.items)
	}
	if e.nulls {
		if err := b.itemsValid(bufs[0], n*e.items); err != nil {
			return err
		}
		bufs = bufs[1:]
	} else if err := b.itemsValid(nil, n*e.items); err != nil {
		return err
	}
	items := newBuilder(e.inner.valueBits(), b.limit)
	if err := d.mini(items, e.inner, bufs, n*e.items); err != nil {
		return err
	}
	return b.add(items.data, n)
}

// itemsValid appends validity of the items of fixed size lists; nil bits stand for
// all valid.
func (b *builder) itemsValid(bits []byte, n int) error {
	if bits == nil && b.valid == nil && b.n > 0 {
		return nil
	}
	if b.valid == nil {
		b.valid = &bitmap{}
	}
	if bits != nil && len(bits) < (n+7)/8 {
		return corrupt("validity of %d items in %d bytes", n, len(bits))
	}
	if err := b.room(n / 8); err != nil {
		return err
	}
	for i := range n {
		b.valid.add(bits == nil || bit(bits, i))
	}
	return nil
}

// addFsst appends decoded values.
func addFsst(b *builder, e *encoding, raw *builder) error {
	t, err := parseFsst(e.symbols)
	if err != nil {
		return err
	}
	if b.bits != 0 || raw.bits != 0 {
		return corrupt("fsst of values of fixed width")
	}
	for i := range raw.n {
		if err := t.add(b, raw.data[raw.offs[i]:raw.offs[i+1]]); err != nil {
			return err
		}
	}
	return nil
}

// variable appends n values that lie between n+1 offsets of w bytes at the front
// of buf; they count from base.
func variable(b *builder, buf []byte, w, n, base int) error {
	if b.bits != 0 {
		return corrupt("values of any width where %d bits are due", b.bits)
	}
	if n > len(buf)/w-1 {
		return corrupt("%d values in %d bytes", n, len(buf))
	}
	first := loadWord(buf, 0, 8*w)
	last := loadWord(buf, n, 8*w)
	size := uint64(len(buf) - base)
	if first > last || last > size {
		return corrupt("values from %d to %d in %d bytes", first, last, size)
	}
	if err := b.room(int(last - first)); err != nil {
		return err
	}
	start := len(b.data)
	b.data = append(b.data, buf[base+int(first):base+int(last)]...)
	prev := first
	for i := 1; i <= n; i++ {
		var end uint64
		if w == 4 {
			end = uint64(binary.LittleEndian.Uint32(buf[4*i:]))
		} else {
			end = binary.LittleEndian.Uint64(buf[8*i:])
		}
		if end < prev || end > last {
			return corrupt("offset %d of %d after %d", end, last, prev)
		}
		prev = end
		b.offs = append(b.offs, uint32(start+int(end-first)))
	}
	b.n += n
	return nil
}

// block decodes one whole buffer of n values; n is -1 where only the buffer
// tells.
func (d *decoder) block(e *encoding, buf []byte, n int) (*builder, error) {
	b := newBuilder(e.valueBits(), maxDecoded)
	if n < 0 && e.kind != encFlat && e.kind != encRle && e.kind != encGeneral {
		return nil, unsupported("%s of an untold number of values", e.name())
	}
	switch e.kind {
	case encFlat:
		if n < 0 {
			if e.bits == 0 {
				return nil, corrupt("values of no width")
			}
			n = len(buf) * 8 / e.bits
		}
		return b, b.add(buf, n)
	case encVariable:
		return b, blockVariable(b, buf, n)
	case encRle:
		if len(buf) < 8 {
			return nil, corrupt("rle without a length")
		}
		size := binary.LittleEndian.Uint64(buf)
		if size > uint64(len(buf)-8) {
			return nil, corrupt("rle values of %d bytes in %d", size, len(buf))
		}
		return b, d.rle(b, e, buf[8:8+size], buf[8+size:], n)
	case encGeneral:
		raw, err := d.decompress(e.scheme, buf)
		if err != nil {
			return nil, err
		}
		return d.block(e.inner, raw, n)
	case encFsst:
		raw, err := d.block(e.inner, buf, n)
		if err != nil {
			return nil, err
		}
		return b, addFsst(b, e, raw)
	}
	return b, d.mini(b, e, [][]byte{buf}, n)
}

// blockVariable reads values behind a header that says where their bytes start,
// in words as wide as the offsets: the first word is 32 for narrow ones.
func blockVariable(b *builder, buf []byte, n int) error {
	if len(buf) < 8 {
		return corrupt("%d values in %d bytes", n, len(buf))
	}
	w, head := 8, 16
	bits, start := uint64(binary.LittleEndian.Uint32(buf)), uint64(0)
	if bits == 32 {
		w, head, start = 4, 8, uint64(binary.LittleEndian.Uint32(buf[4:]))
	} else if len(buf) >= 16 {
		start = binary.LittleEndian.Uint64(buf[8:])
	}
	if bits != 32 && bits != 64 || len(buf) < head || start < uint64(head) || start > uint64(len(buf)) {
		return corrupt("a block of values with offsets of %d bits and bytes at %d", bits, start)
	}
	return variable(b, buf[head:], w, n, int(start)-head)
}

// levels decodes n repetition or definition levels; -1 when only the buffer tells.
func (d *decoder) levels(e *encoding, buf []byte, n int) ([]uint16, error) {
	if e.valueBits() != 16 {
		return nil, corrupt("levels of %d bits", e.valueBits())
	}
	if e.kind == encRle {
		n = -1 // what says n may be too narrow for it
	}
	b, err := d.block(e, buf, n)
	if err != nil {
		return nil, err
	}
	return words16(b.data), nil
}

func words16(data []byte) []uint16 {
	out := make([]uint16, len(data)/2)
	for i := range out {
		out[i] = binary.LittleEndian.Uint16(data[2*i:])
	}
	return out
}
