package lance

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
)

// Inputs that make the most of their bytes: each is a megabyte of the smallest
// message that could cost something.
func TestHostileManifestsCostNoMoreThanTheirBytes(t *testing.T) {
	const size = 256 << 10
	fill := func(one func(i int) []byte) []byte {
		var b bytes.Buffer
		for i := 0; b.Len() < size; i++ {
			b.Write(one(i))
		}
		return b.Bytes()
	}
	same := func(b []byte) []byte { return fill(func(int) []byte { return b }) }
	for about, file := range map[string][]byte{
		"empty fragments":                        manifestFile(same(sub(2))),
		"unsorted fragments":                     manifestFile(fill(func(i int) []byte { return fragment(uint64(1<<27 - i)) })),
		"one fragment of tiny files":             manifestFile(sub(2, same(sub(2, str(1, "a"))))),
		"one fragment of distinct files":         manifestFile(sub(2, fill(func(i int) []byte { return sub(2, str(1, fmt.Sprintf("%x", i))) }))),
		"tiny fragments of one file":             manifestFile(same(sub(2, sub(2, str(1, "a"))))),
		"distinct files, one of them twice":      manifestFile(fill(func(i int) []byte { return sub(2, sub(2, str(1, fmt.Sprintf("%x", i/2)))) })),
		"deletion files of one fragment id":      manifestFile(fill(func(i int) []byte { return sub(2, sub(3, vint(2, uint64(i)))) })),
		"deletion files with long numbers":       manifestFile(fill(func(i int) []byte { return fragment(uint64(i), sub(3, vint(3, 1<<63))) })),
		"overlays":                               manifestFile(same(sub(2, sub(11, sub(1, str(1, "o")))))),
		"external sequences":                     manifestFile(fill(func(i int) []byte { return sub(2, sub(6, str(1, fmt.Sprintf("%x", i)))) })),
		"field ids":                              manifestFile(sub(2, sub(2, str(1, "a"), str(2, string(make([]byte, size)))))),
		"empty fields":                           manifestFile(same(sub(1))),
		"fields with empty metadata":             manifestFile(same(sub(1, sub(10)))),
		"named fields":                           manifestFile(fill(func(i int) []byte { return sub(1, str(2, "n"), str(5, "t"), vint(3, uint64(i))) })),
		"blob fields":                            manifestFile(fill(func(i int) []byte { return sub(1, str(9, blobV2), vint(3, uint64(i))) })),
		"configuration":                          manifestFile(fill(func(i int) []byte { return pair(16, fmt.Sprintf("%x", i), "") })),
		"base paths":                             manifestFile(fill(func(i int) []byte { return sub(18, vint(1, uint64(i)), str(4, "/")) })),
		"indices":                                manifestWith(same(sub(1, uuidBytes("a"))), nil),
		"index files":                            manifestWith(sub(1, uuidBytes("a"), fill(func(i int) []byte { return sub(10, str(1, fmt.Sprintf("%x", i))) })), nil),
		"index field ids":                        manifestWith(sub(1, uuidBytes("a"), str(2, string(make([]byte, size)))), nil),
		"indices over many fields":               manifestWith(fill(func(i int) []byte { return sub(1, uuidBytes("a"), vint(2, uint64(i))) }), nil, fill(func(i int) []byte { return sub(1, vint(3, uint64(i)), str(5, "x")) })),
		"a transaction of empty groups":          manifestWith(nil, sub(104, same(sub(3, sub(1))))),
		"a transaction that deletes much":        manifestWith(nil, sub(101, str(2, string(make([]byte, size))))),
		"a transaction of many operations":       manifestWith(nil, same(sub(101, vint(2, 1)))),
		"a transaction with a property an entry": manifestWith(nil, pb(fill(func(i int) []byte { return pair(4, fmt.Sprintf("%x", i), "") }), sub(100))),
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		m, err := DecodeManifest(file)
		if err != nil {
			t.Errorf("%s: %v", about, err)
			continue
		}
		decoded := measure(&before, &after)
		for range m.Files() {
		}
		files := measure(&before, &after)
		for range m.Fragments() {
		}
		fragments := measure(&before, &after)
		for range m.Fields() {
		}
		for range m.Indices() {
		}
		schema := measure(&before, &after)
		if _, _, err := m.InlineTransaction(); err != nil {
			t.Errorf("%s: %v", about, err)
		}
		txn := measure(&before, &after)
		n := float64(len(file))
		t.Logf("%-40s bytes allocated per byte: decode %4.1f, files %4.1f, fragments %4.1f, schema and indices %4.1f, transaction %4.1f",
			about, float64(decoded)/n, float64(files)/n, float64(fragments)/n, float64(schema)/n, float64(txn)/n)
		if worst := max(decoded, files, fragments, schema, txn); worst > 64<<10+64*uint64(len(file)) {
			t.Errorf("%s: %d bytes of input made it allocate %d", about, len(file), worst)
		}
	}
}

// measure is what was allocated since before, which it moves on.
func measure(before, after *runtime.MemStats) uint64 {
	runtime.ReadMemStats(after)
	n := after.TotalAlloc - before.TotalAlloc
	*before = *after
	return n
}
