package lance

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
)

func TestParseDeletionName(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name                string
		frag, version, id   uint64
		bitmap, wantCorrupt bool
	}{
		{name: "_deletions/0-1-7.arrow", version: 1, id: 7},
		{name: "0-2-17875562197259670449.bin", version: 2, id: 17875562197259670449, bitmap: true},
		{name: "18446744073709551615-0-0.arrow", frag: math.MaxUint64},
		{name: "", wantCorrupt: true}, {name: ".arrow", wantCorrupt: true}, {name: "0-1.arrow", wantCorrupt: true}, {name: "0-1-2-3.arrow", wantCorrupt: true},
		{name: "0-1-2.txt", wantCorrupt: true}, {name: "0-1-2", wantCorrupt: true}, {name: "0-1-.bin", wantCorrupt: true}, {name: "-1-2.bin", wantCorrupt: true},
		{name: "0-1-2-.bin", wantCorrupt: true}, {name: "00-1-2.bin", wantCorrupt: true}, {name: "+0-1-2.bin", wantCorrupt: true}, {name: "0-1-18446744073709551616.bin", wantCorrupt: true},
		{name: "x/0-1-2.bin", wantCorrupt: true}, {name: "0-1-2.arrow.bin", wantCorrupt: true}, {name: "\xff" + strings.Repeat("x", 500), wantCorrupt: true},
	} {
		frag, version, id, bitmap, err := ParseDeletionName(tc.name)
		if isCorrupt(err) != tc.wantCorrupt || frag != tc.frag || version != tc.version || id != tc.id || bitmap != tc.bitmap {
			t.Errorf("%q = %d %d %d %v %v", tc.name, frag, version, id, bitmap, err)
		}
	}
}

func bitmapFile(t testing.TB, runs bool, values ...uint32) []byte {
	t.Helper()
	b := roaring.BitmapOf(values...)
	if runs {
		b.RunOptimize()
	}
	file, err := b.ToBytes()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func span(from, to, step uint32) (values []uint32) {
	for v := from; v < to; v += step {
		values = append(values, v)
	}
	return values
}

func TestCheckDeletionFileBitmap(t *testing.T) {
	t.Parallel()
	const name = "_deletions/0-1-2.bin"
	many := append(append(span(0, 20000, 3), span(70000, 130000, 1)...), 1<<31, 1<<31+5)
	for about, file := range map[string][]byte{
		"empty": bitmapFile(t, false), "one value": bitmapFile(t, false, 7), "arrays and bitmaps": bitmapFile(t, false, many...),
		"runs": bitmapFile(t, true, many...), "few runs, without offsets": bitmapFile(t, true, span(5, 9000, 1)...),
		"bytes behind the end, which readers pass over": append(bitmapFile(t, false, 7), 0),
	} {
		if err := CheckDeletionFile(name, file); err != nil {
			t.Errorf("%s: %v", about, err)
		}
		if about[0] == 'b' || len(file) > 20000 {
			continue
		}
		for n := range file {
			if err := CheckDeletionFile(name, file[:n]); !isCorrupt(err) {
				t.Fatalf("%s: %d of %d bytes: %v", about, n, len(file), err)
			}
		}
	}
	one := bitmapFile(t, false, 7, 9)
	for about, file := range map[string][]byte{
		"zeros": make([]byte, 100), "a count beyond 16 bits": patch(one, func(b []byte) { b[6] = 2 }),
		"values out of order":     patch(one, func(b []byte) { b[len(b)-2] = 1 }),
		"a bitmap with lost bits": patch(bitmapFile(t, false, span(0, 20000, 3)...), func(b []byte) { b[len(b)-7000] = 0 }),
		"runs out of order":       patch(bitmapFile(t, true, span(5, 900, 1)...), func(b []byte) { b[len(b)-1] = 0xff }),
	} {
		if err := CheckDeletionFile(name, file); !isCorrupt(err) {
			t.Errorf("%s: %v", about, err)
		}
	}
	if err := CheckDeletionFile("_deletions/0.bin", one); !isCorrupt(err) {
		t.Errorf("a name that is none: %v", err)
	}
}

func TestCheckLanceFooter(t *testing.T) {
	t.Parallel()
	v2, v1 := lanceFile(pair(5, "k", "v")), legacyFile("values")
	u64 := func(b []byte, back int, v uint64) []byte {
		return patch(b, func(b []byte) { binary.LittleEndian.PutUint64(b[len(b)-back:], v) })
	}
	version := func(b []byte, major, minor byte) []byte {
		return patch(b, func(b []byte) { b[len(b)-8], b[len(b)-6] = major, minor })
	}
	for about, file := range map[string][]byte{"2.0": v2, "0.1": v1, "2.0 by its other name": version(v2, 2, 0), "2.1": version(v2, 2, 1), "2.3": version(v2, 2, 3), "0.2": version(v1, 0, 2)} {
		if err := CheckLanceFooter(file, int64(len(file))); err != nil {
			t.Errorf("%s: %v", about, err)
		}
		tail := file[max(0, len(file)-FooterLen):]
		if err := CheckLanceFooter(tail, int64(len(file))); err != nil {
			t.Errorf("%s, by its last bytes: %v", about, err)
		}
	}
	for about, file := range map[string][]byte{
		"an empty file": nil, "a magic and no more": []byte("LANC"), "zeros": make([]byte, 700),
		"a lost tail": v2[:len(v2)-1], "half of 2.0": v2[len(v2)-44:], "half of 0.1": v1[len(v1)-16:],
		"metadata of 0.1 outside":         u64(v1, 16, 1000),
		"metadata of 0.1 that runs out":   patch(v1, func(b []byte) { b[len("values")+1] = 1 }),
		"columns outside":                 u64(v2, 40, 1<<40),
		"their table outside":             u64(v2, 32, 1<<40),
		"global buffers outside":          u64(v2, 24, math.MaxUint64),
		"no global buffer":                patch(v2, func(b []byte) { b[len(b)-16] = 0 }),
		"more columns than there is room": patch(v2, func(b []byte) { b[len(b)-12+3] = 0xff }),
		"a global buffer that runs out":   u64(v2, 48, 1<<40),
	} {
		if err := CheckLanceFooter(file, int64(len(file))); !isCorrupt(err) {
			t.Errorf("%s: %v", about, err)
		}
	}
	for _, v := range [][2]byte{{2, 4}, {3, 0}, {0, 4}, {1, 0}} {
		file := version(v2, v[0], v[1])
		if err := CheckLanceFooter(file, int64(len(file))); !errors.Is(err, ErrUnknownFormat) || isCorrupt(err) {
			t.Errorf("version %v may be whole: %v", v, err)
		}
	}
	for _, misuse := range []error{CheckLanceFooter(v2[len(v2)-20:], int64(len(v2))), CheckLanceFooter(v2, 3)} {
		if misuse == nil || isCorrupt(misuse) || errors.Is(misuse, ErrUnknownFormat) {
			t.Errorf("too few or too many bytes: %v", misuse)
		}
	}
}
