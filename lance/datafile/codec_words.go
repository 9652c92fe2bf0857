package datafile

import (
	"encoding/binary"
)

// group is how many values FastLanes packs together.
const group = 1024

var laneOrder = [8]int{0, 4, 2, 6, 1, 5, 3, 7}

// unpack reads one group of values of width bits out of words of size bits, in
// the FastLanes order: the words of 1024/size lanes lie interleaved, and the
// values of a row of lanes are 1024/size neighbours.
func unpack(out *[group]uint64, packed []byte, size, width int) {
	if width == 0 {
		clear(out[:])
		return
	}
	lanes := group / size
	words := make([]uint64, 0, group)
	for n := width * lanes; len(words) < n; {
		words = append(words, loadWord(packed, len(words), size))
	}
	mask := ^uint64(0) >> (64 - width)
	for r := range size {
		k, shift := r*width/size, r*width%size
		low := words[k*lanes : (k+1)*lanes]
		to := out[laneOrder[r/8]*16+r%8*128:][:lanes]
		if shift+width <= size {
			for l, w := range low {
				to[l] = w >> shift & mask
			}
			continue
		}
		high := words[(k+1)*lanes : (k+2)*lanes]
		for l, w := range low {
			to[l] = (w>>shift | high[l]<<(size-shift)) & mask
		}
	}
}

func loadWord(b []byte, i, size int) uint64 {
	switch size {
	case 8:
		return uint64(b[i])
	case 16:
		return uint64(binary.LittleEndian.Uint16(b[2*i:]))
	case 32:
		return uint64(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return binary.LittleEndian.Uint64(b[8*i:])
}

// addWords appends words of the builder's own width.
func (b *builder) addWords(words []uint64) error {
	if err := b.room(len(words) * b.bits / 8); err != nil {
		return err
	}
	for _, w := range words {
		switch b.bits {
		case 8:
			b.data = append(b.data, byte(w))
		case 16:
			b.data = binary.LittleEndian.AppendUint16(b.data, uint16(w))
		case 32:
			b.data = binary.LittleEndian.AppendUint32(b.data, uint32(w))
		default:
			b.data = binary.LittleEndian.AppendUint64(b.data, w)
		}
	}
	b.n += len(words)
	return nil
}

// inline decodes n values that start with their width; one group at most, as
// writers make them, or several behind each other.
func inline(b *builder, e *encoding, buf []byte, n int) error {
	var out [group]uint64
	for n > 0 {
		if len(buf) < e.bits/8 {
			return corrupt("bitpacked values without a width")
		}
		w := loadWord(buf, 0, e.bits)
		buf = buf[e.bits/8:]
		if w > uint64(e.bits) || len(buf) < int(w)*group/8 {
			return corrupt("values of %d bits in %d bytes", w, len(buf))
		}
		unpack(&out, buf, e.bits, int(w))
		buf = buf[w*group/8:]
		k := min(n, group)
		if err := b.addWords(out[:k]); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// outOfLine decodes n values whose width the encoding tells. A tail of less than a
// group is packed like one when that is shorter, or lies there as plain words.
func outOfLine(b *builder, e *encoding, buf []byte, n int) error {
	var out [group]uint64
	size := e.width * group / 8
	for n > 0 {
		k := min(n, group)
		if k < group && len(buf) == k*e.bits/8 {
			return b.add(buf, k)
		}
		if len(buf) < size {
			return corrupt("%d values of %d bits in %d bytes", n, e.width, len(buf))
		}
		unpack(&out, buf, e.bits, e.width)
		if err := b.addWords(out[:k]); err != nil {
			return err
		}
		buf, n = buf[size:], n-k
		if e.width == 0 && b.n > maxZeros {
			return corrupt("%d values in no byte", b.n)
		}
	}
	return nil
}

// maxZeros is how many values may come out of no byte at all.
const maxZeros = 1 << 20

// maxRuns is how many values runs with lengths of 32 bits may make.
const maxRuns = 1 << 24

// rle repeats values. lengths are the runs, n what they must add up to; -1 when
// only they tell.
func (d *decoder) rle(b *builder, e *encoding, values, lengths []byte, n int) error {
	w := e.lengths.bits / 8
	if e.lengths.kind != encFlat || w != 1 && w != 2 && w != 4 {
		return unsupported("rle with run lengths in %s of %d bits", e.lengths.name(), e.lengths.bits)
	}
	runs := len(lengths) / w
	if e.inner.kind != encFlat {
		v, err := d.block(e.inner, values, runs)
		if err != nil {
			return err
		}
		values = v.data
	}
	size := b.bits / 8
	if size == 0 || b.bits%8 != 0 {
		return unsupported("rle of values of %d bits", b.bits)
	}
	if len(values) < runs*size {
		return corrupt("%d runs with %d bytes of values", runs, len(values))
	}
	total := 0
	for i := range runs {
		k := int(loadWord(lengths, i, 8*w))
		if total += k; n >= 0 && total > n {
			return corrupt("runs of more than %d values", n)
		}
		if w == 4 && total > maxRuns {
			return unsupported("runs of %d values", total)
		}
		if err := b.room(k * size); err != nil {
			return err
		}
		v := values[i*size : (i+1)*size]
		for range k {
			b.data = append(b.data, v...)
		}
		b.n += k
	}
	if n >= 0 && total != n {
		return corrupt("runs of %d values instead of %d", total, n)
	}
	return nil
}

// byteStreams joins values whose first bytes lie together, then their second, …
func byteStreams(b *builder, buf []byte, n int) error {
	w := b.bits / 8
	if w == 0 || b.bits%8 != 0 {
		return unsupported("byte stream split of values of %d bits", b.bits)
	}
	if len(buf) < n*w {
		return corrupt("%d values of %d bytes in %d", n, w, len(buf))
	}
	if err := b.room(n * w); err != nil {
		return err
	}
	for i := range n {
		for j := range w {
			b.data = append(b.data, buf[j*n+i])
		}
	}
	b.n += n
	return nil
}
