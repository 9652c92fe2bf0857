package tables_test

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rocketkeep/reconcile/lance/datafile"
	"github.com/rocketkeep/reconcile/reconcile"
)

// mark says which bytes of a file are values, and which tell how to read them: 'p' a
// page's, 'm' of the metadata, 'f' the footer, '-' padding.
func mark(t *testing.T, ref reconcile.Reference, b []byte) []byte {
	t.Helper()
	out := slices.Repeat([]byte{'p'}, len(b))
	if ext := path.Ext(ref.Path); ext == ".arrow" || ext == ".bin" {
		return out
	}
	footer := 40
	start := int(b[len(b)-40]) | int(b[len(b)-39])<<8 | int(b[len(b)-38])<<16
	if file, err := datafile.Open(t.Context(), inMemory(b), int64(len(b))); err != nil || file == nil {
		footer = 16
		start = int(b[len(b)-16]) | int(b[len(b)-15])<<8 | int(b[len(b)-14])<<16
	}
	for i := start; i < len(b); i++ {
		out[i] = 'm'
		if i >= len(b)-footer {
			out[i] = 'f'
		}
	}
	return out
}

// tally counts flips by region of a file and by what came of them.
type tally struct {
	mu sync.Mutex
	n  map[string]map[byte][2]int // kind of file, region: flips, of those noticed
}

func (c *tally) add(kind string, region byte, noticed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n[kind] == nil {
		c.n[kind] = map[byte][2]int{}
	}
	v := c.n[kind][region]
	v[0]++
	if noticed {
		v[1]++
	}
	c.n[kind][region] = v
}

func kindOf(ref reconcile.Reference, b []byte) string {
	ext := path.Ext(ref.Path)
	if ext == ".arrow" || ext == ".bin" {
		return "deletion " + ext
	}
	role := "data"
	if ref.Role == reconcile.RoleIndex || strings.Contains(ref.Path, "_indices/") {
		role = "index"
	}
	major, minor := b[len(b)-8], b[len(b)-6]
	switch {
	case major == 0 && minor < 3:
		return role + " 0.1"
	case major == 0:
		return role + " 2.0"
	}
	return fmt.Sprintf("%s %d.%d", role, major, minor)
}

// flipsPerFile keeps the test short. With every byte of every file flipped, in one bit
// and in all, as much is noticed as here: of data files 2.0 to 2.2 all flips in the
// footer, 99% of those in metadata, 75% of those in pages and schema; of index files
// 100%, 99% and 57%; of files 0.1 100%, 7% and 32% (most of their metadata are
// statistics, which nothing here reads); of Arrow deletion files 52%, of bitmaps all.
// What is left are values, and padding within pages: in files of some MB, which are
// nearly all values, one random flip in seven is noticed.
const flipsPerFile = 48

func TestFlippedBytesAreNoticed(t *testing.T) {
	t.Parallel()
	count := &tally{n: map[string]map[byte][2]int{}}
	// Of the flips that refuse a copy: whether the rest of it still agrees. The schema of a
	// tiny file lies among its pages.
	inside := &tally{n: map[string]map[byte][2]int{}}
	t.Run("tables", func(t *testing.T) {
		eachTable(t, func(t *testing.T, o opened) {
			for _, ref := range o.refs {
				b := bytesOf(t, ref)
				if proofOf(ref) != "proven" {
					continue
				}
				region := mark(t, ref, b)
				for i := len(b) % 7; i < len(b); i += 1 + len(b)/flipsPerFile {
					x := byte(1 << (i % 8))
					b[i] ^= x
					got, err := o.verdict(t.Context(), ref, b)
					b[i] ^= x
					count.add(kindOf(ref, b), region[i], got != "proven")
					if got == "refused" {
						inside.add(kindOf(ref, b), region[i], errors.Is(err, reconcile.ErrInside))
					}
					if got == "proven by nothing" {
						t.Errorf("%s byte %d: %v", ref.Path, i, err)
					}
				}
			}
		})
	})
	least := map[string]map[byte]float64{"deletion .arrow": {'p': 0.45}, "deletion .bin": {'p': 0.95}}
	for _, format := range []string{"2.0", "2.1", "2.2"} {
		least["data "+format] = map[byte]float64{'f': 1, 'm': 0.93, 'p': 0.7}
		least["index "+format] = map[byte]float64{'f': 0.95, 'm': 0.9, 'p': 0.35}
	}
	least["data 0.1"] = map[byte]float64{'f': 0.97, 'p': 0.25}
	for kind, regions := range count.n {
		for r, v := range regions {
			ratio := float64(v[1]) / float64(v[0])
			t.Logf("%-15s %c %6d of %6d flips noticed (%.3f)", kind, r, v[1], v[0], ratio)
			if ratio < least[kind][r] {
				t.Errorf("%s: of flips in %c only %.3f are noticed", kind, r, ratio)
			}
		}
	}
	for kind, regions := range inside.n {
		for r, v := range regions {
			t.Logf("%-15s %c %6d of %6d refusals are of what lies inside", kind, r, v[1], v[0])
			if r == 'f' && v[1] > 0 || r == 'p' && strings.HasPrefix(kind, "data 2") && 4*v[1] < v[0] {
				t.Errorf("%s: of refusals for flips in %c, %d of %d are of what lies inside", kind, r, v[1], v[0])
			}
		}
	}
	if len(count.n["data 2.2"]) < 3 {
		t.Error("no flips in files of format 2.2")
	}
}
