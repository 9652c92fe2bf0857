package lance

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"slices"
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

// container is 65,536 values that share their upper half, as far as they are set.
type container struct {
	key   uint16
	card  int
	isRun bool
	body  []byte // as it lies in the file, checked
}

// parseRoaring walks a bitmap to its end. Bytes after it do not matter to readers.
// What it returns points into b and does not fail later.
func parseRoaring(b []byte) ([]container, error) {
	if len(b) < minRoaring {
		return nil, errRoaring
	}
	cookie := binary.LittleEndian.Uint32(b)
	var count int
	var runs []byte
	switch {
	case cookie == roaringCookie:
		n := binary.LittleEndian.Uint32(b[4:])
		if n > 1<<16 {
			return nil, errRoaring
		}
		count, b = int(n), b[8:]
	case cookie&0xffff == roaringRunCookie:
		count = int(cookie>>16) + 1
		n := (count + 7) / 8
		if len(b) < 4+n {
			return nil, errRoaring
		}
		runs, b = b[4:4+n], b[4+n:]
	default:
		return nil, errRoaring
	}
	if len(b) < 4*count {
		return nil, errRoaring
	}
	header, b := b[:4*count], b[4*count:]
	if runs == nil || count >= roaringNoOffsets {
		if len(b) < 4*count {
			return nil, errRoaring
		}
		b = b[4*count:]
	}
	containers := make([]container, count)
	for i := range containers {
		c := &containers[i]
		c.key = binary.LittleEndian.Uint16(header[4*i:])
		if i > 0 && c.key <= containers[i-1].key {
			return nil, errRoaring
		}
		c.card = int(binary.LittleEndian.Uint16(header[4*i+2:])) + 1
		c.isRun = runs != nil && runs[i/8]&(1<<(i%8)) != 0
		var ok bool
		if b, ok = c.cut(b); !ok {
			return nil, errRoaring
		}
	}
	return containers, nil
}

// cut takes the container's body off b and checks it.
func (c *container) cut(b []byte) (rest []byte, ok bool) {
	n := roaringBitmapSize
	switch {
	case c.isRun:
		if len(b) < 2 {
			return nil, false
		}
		n = 4 * int(binary.LittleEndian.Uint16(b))
		b = b[2:]
	case c.card <= roaringArrayMax:
		n = 2 * c.card
	}
	if len(b) < n {
		return nil, false
	}
	c.body = b[:n]
	return b[n:], c.whole()
}

// whole holds the body against the cardinality, and its values against their order.
func (c *container) whole() bool {
	switch {
	case c.isRun:
		next, sum := 0, 0
		for r := c.body; len(r) > 0; r = r[4:] {
			start, length := int(binary.LittleEndian.Uint16(r)), int(binary.LittleEndian.Uint16(r[2:]))+1
			if start < next || start+length > 1<<16 {
				return false
			}
			next, sum = start+length, sum+length
		}
		return sum == c.card
	case c.card <= roaringArrayMax:
		last := -1
		for a := c.body; len(a) > 0; a = a[2:] {
			v := int(binary.LittleEndian.Uint16(a))
			if v <= last {
				return false
			}
			last = v
		}
		return true
	}
	sum := 0
	for w := c.body; len(w) > 0; w = w[8:] {
		sum += bits.OnesCount64(binary.LittleEndian.Uint64(w))
	}
	return sum == c.card
}

// has reports whether the lower half v is set.
func (c *container) has(v uint16) bool {
	switch {
	case c.isRun:
		for r := c.body; len(r) > 0; r = r[4:] {
			start, length := binary.LittleEndian.Uint16(r), binary.LittleEndian.Uint16(r[2:])
			if v >= start && v-start <= length {
				return true
			}
		}
		return false
	case c.card <= roaringArrayMax:
		lo, hi := 0, c.card
		for lo < hi {
			mid := (lo + hi) / 2
			if binary.LittleEndian.Uint16(c.body[2*mid:]) < v {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		return lo < c.card && binary.LittleEndian.Uint16(c.body[2*lo:]) == v
	}
	return c.body[v/8]>>(v%8)&1 == 1 // little endian words are little endian bits
}

// each yields the values in ascending order until yield returns false.
func (c *container) each(yield func(uint32) bool) bool {
	high := uint32(c.key) << 16
	switch {
	case c.isRun:
		for r := c.body; len(r) > 0; r = r[4:] {
			start, length := uint32(binary.LittleEndian.Uint16(r)), uint32(binary.LittleEndian.Uint16(r[2:]))
			for v := start; v <= start+length; v++ {
				if !yield(high | v) {
					return false
				}
			}
		}
	case c.card <= roaringArrayMax:
		for a := c.body; len(a) > 0; a = a[2:] {
			if !yield(high | uint32(binary.LittleEndian.Uint16(a))) {
				return false
			}
		}
	default:
		for i := 0; i < len(c.body); i += 8 {
			for w := binary.LittleEndian.Uint64(c.body[i:]); w != 0; w &= w - 1 {
				if !yield(high | uint32(8*i+bits.TrailingZeros64(w))) {
					return false
				}
			}
		}
	}
	return true
}

// containersHave reports whether v is set in sorted containers.
func containersHave(cs []container, v uint32) bool {
	i, found := slices.BinarySearchFunc(cs, uint16(v>>16), func(c container, key uint16) int { return int(c.key) - int(key) })
	return found && cs[i].has(uint16(v))
}

// bitmapHas reports whether a portable Roaring bitmap holds v. The error says that
// it is not a whole bitmap.
func bitmapHas(b []byte, v uint32) (bool, error) {
	cs, err := parseRoaring(b)
	return err == nil && containersHave(cs, v), err
}
