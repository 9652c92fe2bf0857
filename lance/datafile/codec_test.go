package datafile

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// packWords is the reverse of unpack, value by value.
func packWords(values []uint64, size, width int) []byte {
	out := make([]byte, width*group/8)
	lanes := group / size
	for row := range size {
		for lane := range lanes {
			v := values[laneOrder[row/8]*16+row%8*128+lane]
			for b := range width {
				at := row*width + b // bit in the stream of this lane
				word := at/size*lanes + lane
				if v>>b&1 != 0 {
					out[(word*size+at%size)/8] |= 1 << (at % 8)
				}
			}
		}
	}
	return out
}

func TestBitpackingOfEachWidthComesBack(t *testing.T) {
	t.Parallel()
	for _, size := range []int{8, 16, 32, 64} {
		for width := 1; width <= size; width++ {
			want := make([]uint64, group)
			for i := range want {
				want[i] = (uint64(i)*0x9E3779B97F4A7C15 + 7) >> (64 - width)
			}
			var got [group]uint64
			unpack(&got, packWords(want, size, width), size, width)
			if d := cmp.Diff(want, got[:]); d != "" {
				t.Fatalf("%d bits of %d: %s", width, size, d)
			}
		}
	}
}

func TestATailOfPackedValues(t *testing.T) {
	t.Parallel()
	values := func(n int) []uint64 {
		out := make([]uint64, group)
		for i := range n {
			out[i] = uint64(i % 5)
		}
		return out
	}
	plain := func(n int) (b []byte) {
		for _, v := range values(n)[:n] {
			b = binary.LittleEndian.AppendUint16(b, uint16(v))
		}
		return b
	}
	for _, c := range []struct {
		name string
		n    int
		tail []byte
	}{
		{"is packed when that is shorter", 500, packWords(values(500), 16, 3)},
		{"is plain when that is shorter", 100, plain(100)},
		// 192 words of 16 bits are as long as 1,024 values of 3 bits: writers pack
		// only what gets shorter.
		{"is plain when both are as long", 192, plain(192)},
	} {
		t.Run("a tail "+c.name, func(t *testing.T) {
			t.Parallel()
			b := newBuilder(16, maxDecoded)
			full := packWords(values(group), 16, 3)
			if err := outOfLine(b, &encoding{kind: encOutOfLine, bits: 16, width: 3}, append(full, c.tail...), group+c.n); err != nil {
				t.Fatal(err)
			}
			want := append(plain(group), plain(c.n)...)
			if d := cmp.Diff(want, b.data); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestLz4MatchesThatOverlap(t *testing.T) {
	t.Parallel()
	got, err := lz4([]byte{0x36, 'a', 'b', 'c', 2, 0, 0x10, 'z'}, 14)
	if err != nil || string(got) != "abcbcbcbcbcbcz" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestFsstOfATableThatIsOffIsPlain(t *testing.T) {
	t.Parallel()
	table := append([]byte{1, 0, 0, 1, 'T', 'S', 'S', 'F'}, 'a', 'b', 'c', 0, 0, 0, 0, 0, 3)
	for on, want := range map[byte]string{1: "abcxabc", 0: "\x00\xffx\x00"} {
		table[3] = on
		s, err := parseFsst(table)
		if err != nil {
			t.Fatal(err)
		}
		b := newBuilder(0, maxDecoded)
		if err := s.add(b, []byte{0, 255, 'x', 0}); err != nil || string(b.data) != want {
			t.Errorf("switch %d: %q, %v, want %q", on, b.data, err, want)
		}
	}
}
