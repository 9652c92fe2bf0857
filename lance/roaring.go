package lance

import (
	"encoding/binary"
	"errors"
	"math/bits"
)

// The portable 32-bit Roaring format (github.com/RoaringBitmap/RoaringFormatSpec):
// a cookie, per container its upper 16 bits and cardinality, offsets (absent when
// there are run containers and fewer than four), then the containers.
const (
	roaringCookie     = 12346 // without run containers
	roaringRunCookie  = 12347 // in the lower half; the upper half is the count - 1
	roaringNoOffsets  = 4
	roaringArrayMax   = 4096
	roaringBitmapSize = 8192
	// minRoaring is an empty bitmap.
	minRoaring = 8
)

var errRoaring = errors.New("not a whole Roaring bitmap")

// checkRoaring walks a bitmap to its end. Bytes after it do not matter to readers.
func checkRoaring(b []byte) error {
	if len(b) < minRoaring {
		return errRoaring
	}
	cookie := binary.LittleEndian.Uint32(b)
	var count int
	var runs []byte
	switch {
	case cookie == roaringCookie:
		n := binary.LittleEndian.Uint32(b[4:])
		if n > 1<<16 {
			return errRoaring
		}
		count, b = int(n), b[8:]
	case cookie&0xffff == roaringRunCookie:
		count = int(cookie>>16) + 1
		n := (count + 7) / 8
		if len(b) < 4+n {
			return errRoaring
		}
		runs, b = b[4:4+n], b[4+n:]
	default:
		return errRoaring
	}
	if len(b) < 4*count {
		return errRoaring
	}
	header, b := b[:4*count], b[4*count:]
	if runs == nil || count >= roaringNoOffsets {
		if len(b) < 4*count {
			return errRoaring
		}
		b = b[4*count:]
	}
	last := -1
	for i := range count {
		key := int(binary.LittleEndian.Uint16(header[4*i:]))
		if key <= last {
			return errRoaring
		}
		last = key
		card := int(binary.LittleEndian.Uint16(header[4*i+2:])) + 1
		isRun := runs != nil && runs[i/8]&(1<<(i%8)) != 0
		var ok bool
		if b, ok = cutContainer(b, card, isRun); !ok {
			return errRoaring
		}
	}
	return nil
}

// cutContainer checks the container that b begins with and returns what follows it.
func cutContainer(b []byte, card int, isRun bool) (rest []byte, ok bool) {
	switch {
	case isRun:
		if len(b) < 2 {
			return nil, false
		}
		n := int(binary.LittleEndian.Uint16(b))
		if len(b) < 2+4*n {
			return nil, false
		}
		next, sum := 0, 0
		for r := b[2 : 2+4*n]; len(r) > 0; r = r[4:] {
			start, length := int(binary.LittleEndian.Uint16(r)), int(binary.LittleEndian.Uint16(r[2:]))+1
			if start < next || start+length > 1<<16 {
				return nil, false
			}
			next, sum = start+length, sum+length
		}
		return b[2+4*n:], sum == card
	case card <= roaringArrayMax:
		if len(b) < 2*card {
			return nil, false
		}
		last := -1
		for a := b[:2*card]; len(a) > 0; a = a[2:] {
			v := int(binary.LittleEndian.Uint16(a))
			if v <= last {
				return nil, false
			}
			last = v
		}
		return b[2*card:], true
	}
	if len(b) < roaringBitmapSize {
		return nil, false
	}
	sum := 0
	for w := b[:roaringBitmapSize]; len(w) > 0; w = w[8:] {
		sum += bits.OnesCount64(binary.LittleEndian.Uint64(w))
	}
	return b[roaringBitmapSize:], sum == card
}
