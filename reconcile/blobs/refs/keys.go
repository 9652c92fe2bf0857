package refs

import "hash/maphash"

// defaultMaxKeys bounds the memory for keys: 16 bytes each in a table that is at most
// three quarters full, 128 MiB at the most.
const defaultMaxKeys = 6 << 20

// keySet remembers keys, and what their rows said, by digests under a secret of this
// process, so that nobody can choose keys that meet. Of a key it keeps 80 bits, of size
// and checksum 24 bits each: that two of five million keys meet has a chance of 1 in
// 10^11, that a contradiction goes unnoticed one of 1 in 10^7.
type keySet struct {
	seed  [2]maphash.Seed
	slots []keySlot
	used  int
	max   int // keys
}

// keySlot is a digest of a key and what its row said; all zero when free.
type keySlot struct {
	key  uint64
	rest uint64 // 16 bits of the key, 24 of the size, 24 of the checksum; 0: not recorded
}

// known is what the set says of a row.
type known uint8

const (
	newKey known = iota
	sameAgain
	contradicts
	noRoom // a new key that cannot be remembered
)

func newKeySet(maxKeys int) *keySet {
	if maxKeys <= 0 {
		maxKeys = defaultMaxKeys
	}
	return &keySet{seed: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, slots: make([]keySlot, 1<<10), max: maxKeys}
}

const (
	mask24   = 1<<24 - 1
	keyBits  = 0xffff << 48
	sizeBits = mask24 << 24
	sumBits  = mask24
)

// digest24 is never 0, which stands for not recorded.
func digest24(w uint64) uint64 { return max(w&mask24, 1) }

// add remembers a row. Where an earlier row with the key left something out that this
// one records, it is remembered from then on.
func (s *keySet) add(r *Record) known {
	key := max(maphash.String(s.seed[0], r.Key), 1)
	rest := maphash.String(s.seed[1], r.Key) & keyBits
	if r.Size != Unknown {
		rest |= digest24(maphash.Comparable(s.seed[1], r.Size)) << 24
	}
	if r.Checksum != "" {
		rest |= digest24(maphash.String(s.seed[1], r.Checksum))
	}
	slot := s.find(s.slots, key, rest)
	if slot.key != 0 {
		answer := sameAgain
		for _, part := range [...]uint64{sizeBits, sumBits} {
			switch was, is := slot.rest&part, rest&part; {
			case was == 0:
				slot.rest |= is
			case is != 0 && is != was:
				answer = contradicts
			}
		}
		return answer
	}
	if s.used >= s.max {
		return noRoom
	}
	*slot = keySlot{key, rest}
	s.used++
	if s.used > len(s.slots)/4*3 {
		s.grow()
	}
	return newKey
}

// find gives the slot of a key, or the free one where it belongs.
func (s *keySet) find(slots []keySlot, key, rest uint64) *keySlot {
	for i := key % uint64(len(slots)); ; i = (i + 1) % uint64(len(slots)) {
		if at := &slots[i]; at.key == 0 || at.key == key && at.rest&keyBits == rest&keyBits {
			return at
		}
	}
}

func (s *keySet) grow() {
	wider := make([]keySlot, 2*len(s.slots))
	for _, at := range s.slots {
		if at.key != 0 {
			*s.find(wider, at.key, at.rest) = at
		}
	}
	s.slots = wider
}
