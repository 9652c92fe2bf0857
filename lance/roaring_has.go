package lance

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// bitmapHas reports whether a portable Roaring bitmap holds v. The error says that
// it is not a whole bitmap.
func bitmapHas(b []byte, v uint32) (bool, error) {
	if err := checkRoaring(b); err != nil {
		return false, err
	}
	// From here on every length is known to be right.
	count, at, runs := int(binary.LittleEndian.Uint32(b[4:])), 8, []byte(nil)
	if cookie := binary.LittleEndian.Uint32(b); cookie&0xffff == roaringRunCookie {
		count = int(cookie>>16) + 1
		at = 4 + (count+7)/8
		runs = b[4:at]
	}
	header := b[at : at+4*count]
	at += 4 * count
	if runs == nil || count >= roaringNoOffsets {
		at += 4 * count
	}
	b = b[at:]
	for i := range count {
		card := int(binary.LittleEndian.Uint16(header[4*i+2:])) + 1
		isRun := runs != nil && runs[i/8]&(1<<(i%8)) != 0
		if binary.LittleEndian.Uint16(header[4*i:]) == uint16(v>>16) {
			return containerHas(b, card, isRun, uint16(v)), nil
		}
		b, _ = cutContainer(b, card, isRun)
	}
	return false, nil
}

// containerHas reports whether the container that b begins with holds v.
func containerHas(b []byte, card int, isRun bool, v uint16) bool {
	switch {
	case isRun:
		n := int(binary.LittleEndian.Uint16(b))
		for r := b[2 : 2+4*n]; len(r) > 0; r = r[4:] {
			start, length := binary.LittleEndian.Uint16(r), binary.LittleEndian.Uint16(r[2:])
			if v >= start && v-start <= length {
				return true
			}
		}
		return false
	case card <= roaringArrayMax:
		values := make([]uint16, card)
		for i := range values {
			values[i] = binary.LittleEndian.Uint16(b[2*i:])
		}
		_, found := slices.BinarySearch(values, v)
		return found
	}
	word := binary.LittleEndian.Uint64(b[8*(v/64):])
	return bits.RotateLeft64(word, -int(v%64))&1 == 1
}
