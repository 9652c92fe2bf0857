package lance

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeManifestReadsTheHeader(t *testing.T) {
	t.Parallel()
	txn := pb(vint(1, 6), str(2, "u"), sub(101, packed(2, 3)))
	index := sub(1, uuidBytes("a"), str(3, "id_idx"))
	m, err := DecodeManifest(manifestWith(index, txn,
		sub(1, str(2, "id"), str(5, "int64"), vint(4, ^uint64(0))),
		vint(3, 7), pair(5, "meta", "\xff\x00"), sub(7, vint(1, 1795951516), vint(2, 5)), str(8, "t"),
		vint(9, 17), vint(10, 25), vint(11, 3), str(12, "6-x.txn"),
		sub(13, str(1, "lance"), str(2, "12.0.0"), str(3, "rc.1"), str(4, "b1")), vint(14, 20), sub(15, str(1, "lance"), str(2, "2.2")),
		pair(16, "lance.auto_cleanup.interval", "20"),
		sub(18, str(4, "s3://b/zero"), vint(3, 1)), sub(18, vint(1, 2), str(2, "n"), str(4, "/two")),
		pair(19, "k", "v"), str(20, "dev"), vint(99, 1), str(1000, "of a later release")))
	if err != nil {
		t.Fatal(err)
	}
	three := uint32(3)
	want := &Manifest{
		Version: 7, ReaderFlags: 17, WriterFlags: 25, Timestamp: time.Unix(1795951516, 5).UTC(),
		WriterVersion: WriterVersion{"lance", "12.0.0", "rc.1", "b1"}, DataFormat: "2.2", MaxFragmentID: &three, NextRowID: 20,
		TransactionFile: "6-x.txn", Branch: "dev", Tag: "t",
		BasePaths: []BasePath{{0, "", true, "s3://b/zero"}, {2, "n", false, "/two"}},
		Config:    map[string]string{"lance.auto_cleanup.interval": "20"}, TableMetadata: map[string]string{"k": "v"},
		SchemaMetadata: map[string]string{"meta": "\xff\x00"}, FooterMinor: 2,
	}
	if d := cmp.Diff(want, m, cmp.FilterPath(func(p cmp.Path) bool {
		f, ok := p.Last().(cmp.StructField)
		return ok && f.Name()[0] >= 'a'
	}, cmp.Ignore())); d != "" {
		t.Error(d)
	}
	if b, ok := m.Base(0); !ok || b.Path != "s3://b/zero" {
		t.Errorf("base 0 = %v, %v", b, ok)
	}
	if _, ok := m.Base(1); ok {
		t.Error("base 1 is not there")
	}
	if tx, ok, err := m.InlineTransaction(); err != nil || !ok || tx.Operation != OpDelete || !slices.Equal(tx.DeletedFragmentIDs, []uint64{3}) {
		t.Errorf("inline transaction %+v, %v, %v", tx, ok, err)
	}
	if msg, at := m.Message(); string(m.Raw()[at:at+len(msg)]) != string(msg) || len(m.Raw()) != at+len(msg)+16 {
		t.Errorf("message of %d bytes at %d of %d", len(msg), at, len(m.Raw()))
	}
}

func TestAnOldManifestLacksNearlyEverything(t *testing.T) {
	t.Parallel()
	m, err := DecodeManifest(manifestFile(vint(3, 1)))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := m.InlineTransaction(); ok || err != nil {
		t.Errorf("inline transaction: %v, %v", ok, err)
	}
	if m.MaxFragmentID != nil || !m.Timestamp.IsZero() || m.DataFormat != "" || m.HasMemWAL() || m.HasBlobV2() {
		t.Errorf("%+v", m)
	}
	for f := range m.Files() {
		t.Errorf("it names %+v", f)
	}
}

// patch changes a copy of a file.
func patch(b []byte, fn func([]byte)) []byte {
	b = slices.Clone(b)
	fn(b)
	return b
}

func TestDecodeManifestRefusesWhatIsNotWhole(t *testing.T) {
	t.Parallel()
	good := manifestWith(sub(1, uuidBytes("a")), pb(vint(1, 1), sub(100)), vint(3, 7), fragment(0, sub(2, dataFile("a.lance", 9, []int64{0}))))
	if _, err := DecodeManifest(good); err != nil {
		t.Fatal(err)
	}
	pos := int(binary.LittleEndian.Uint64(good[len(good)-16:]))
	for _, tc := range []struct {
		about  string
		file   []byte
		reason string
	}{
		{"an empty file", nil, "empty"},
		{"a few bytes", []byte("LANC"), "too few"},
		{"zeros", make([]byte, 600), "does not end"},
		{"a lost tail", good[:len(good)-1], "does not end"},
		{"a lost head", good[9:], ""},
		{"an offset behind the end", patch(good, func(b []byte) { binary.LittleEndian.PutUint64(b[len(b)-16:], uint64(len(b))) }), "start at"},
		{"a negative offset", patch(good, func(b []byte) { binary.LittleEndian.PutUint64(b[len(b)-16:], ^uint64(0)) }), "start at"},
		{"a length that is too high", patch(good, func(b []byte) { b[pos]++ }), "frame leaves"},
		{"a length that is too low", patch(good, func(b []byte) { b[pos]-- }), "frame leaves"},
		{"an index section behind the manifest", manifestFile(vint(6, 1<<40)), "index section"},
		{"an index section that overlaps the manifest", manifestFile(vint(6, 0)), "index section"},
		{"an index section that runs into the manifest", patch(good, func(b []byte) { b[3] = 1 }), "index section"},
		{"a transaction that runs into the manifest", manifestFile(vint(21, 1)), "transaction"},
		{"a field that runs past the end", manifestFile([]byte{0x12, 0x7f}), "past its end"},
		{"a group", manifestFile([]byte{0x13, 0x14}), "wire type"},
		{"a field number of zero", manifestFile([]byte{0x00}), "tag"},
		{"fragments that are a number", manifestFile(vint(2, 1)), "wire type"},
		{"a fragment with a broken file", manifestFile(fragment(0, str(2, "\x0a\x7f"))), "past its end"},
		{"a file without a name", manifestFile(fragment(0, sub(2, vint(6, 1)))), "without a name"},
		{"a file that leaves its folder", manifestFile(fragment(0, sub(2, str(1, "../x.lance")))), "leaves its folder"},
		{"a file with an absolute name", manifestFile(fragment(0, sub(2, str(1, "/x.lance")))), "absolute"},
		{"a file name with NUL", manifestFile(fragment(0, sub(2, str(1, "x\x00")))), "NUL"},
		{"a file name that is not UTF-8", manifestFile(fragment(0, sub(2, str(1, "\xff.lance")))), "UTF-8"},
		{"a size beyond any object", manifestFile(fragment(0, sub(2, str(1, "x"), vint(6, 1<<63)))), "beyond"},
		{"an unknown type of deletion file", manifestFile(fragment(0, sub(3, vint(1, 2)))), "unknown type"},
		{"an overlay without a file", manifestFile(fragment(0, sub(11, vint(3, 1)))), "overlay"},
		{"an index without an id", manifestWith(sub(1, str(3, "x")), nil), "no uuid"},
		{"an index with a short id", manifestWith(sub(1, sub(1, str(1, "xy"))), nil), "uuid of 2"},
		{"an index file that leaves its folder", manifestWith(sub(1, uuidBytes("a"), sub(10, str(1, "../x"))), nil), "leaves"},
		{"a transaction file that leaves its folder", manifestFile(str(12, "../1-x.txn")), "leaves"},
		{"a base path that is empty", manifestFile(sub(18, vint(1, 1))), "base path 1"},
		{"a deletion file under a base that has no place for it", manifestFile(sub(18, vint(1, 1), str(4, "/x")),
			fragment(0, sub(3, vint(2, 1), vint(7, 1)))), "no dataset root"},
		{"a range that wraps around", manifestFile(fragment(0, sub(6, str(1, "x"), vint(2, 1<<63-1), vint(3, 1)))), "beyond"},
		{"a broken schema", manifestFile(sub(1, vint(2, 1))), "wire type"},
		{"broken metadata of a field", manifestFile(sub(1, str(10, "\x0a\x7f"))), "past its end"},
		{"broken column indices", manifestFile(fragment(0, sub(2, str(1, "x"), str(3, "\xff")))), "broken number"},
	} {
		_, err := DecodeManifest(tc.file)
		c, ok := errors.AsType[*CorruptError](err)
		if !ok || !strings.Contains(c.Reason, tc.reason) {
			t.Errorf("%s: error %v, want a *CorruptError with %q", tc.about, err, tc.reason)
		}
	}
	later := patch(good, func(b []byte) { b[len(b)-6] = 3 })
	if _, err := DecodeManifest(later); !errors.Is(err, ErrUnknownFormat) {
		t.Errorf("a frame of a later release: %v", err)
	}
}

func TestEveryTruncationOfAManifestIsCorrupt(t *testing.T) {
	t.Parallel()
	good := manifestWith(sub(1, uuidBytes("a"), str(3, "i")), pb(vint(1, 1), sub(100)), vint(3, 7), fragment(0, sub(2, dataFile("a.lance", 9, []int64{0}))))
	for n := range good {
		if _, err := DecodeManifest(good[:n]); !isCorrupt(err) {
			t.Fatalf("%d of %d bytes: %v", n, len(good), err)
		}
	}
}

func isCorrupt(err error) bool {
	_, ok := errors.AsType[*CorruptError](err)
	return ok
}

func TestReadManifest(t *testing.T) {
	t.Parallel()
	const name = "_versions/7.manifest"
	good := manifestFile(vint(3, 7))
	denied := errors.New("access denied")
	for _, tc := range []struct {
		about   string
		file    []byte
		entry   VersionEntry
		store   func(*memStore)
		corrupt bool
		err     error
	}{
		{about: "whole, with its size known", file: good, entry: VersionEntry{Version: 7, Size: int64(len(good))}},
		{about: "whole, of unknown size", file: good, entry: VersionEntry{Version: 7, Size: -1}, store: func(s *memStore) { s.sizeless = true }},
		{about: "the listing told another size", file: good, entry: VersionEntry{Version: 7, Size: 3}},
		{about: "empty", file: []byte{}, entry: VersionEntry{Version: 7}, corrupt: true},
		{about: "empty, of unknown size", file: []byte{}, entry: VersionEntry{Version: 7, Size: -1}, store: func(s *memStore) { s.sizeless = true }, corrupt: true},
		{about: "truncated", file: good[:len(good)-2], entry: VersionEntry{Version: 7}, corrupt: true},
		{about: "of another version than its name says", file: good, entry: VersionEntry{Version: 8}, corrupt: true},
		{about: "missing", entry: VersionEntry{Version: 7}, err: fs.ErrNotExist},
		{about: "denied", file: good, entry: VersionEntry{Version: 7}, store: func(s *memStore) { s.getErr = map[string]error{name: denied} }, err: denied},
		{about: "a body that breaks off is a failed read, not a damaged object", file: good, entry: VersionEntry{Version: 7},
			store: func(s *memStore) { s.cut = map[string]int{name: 5} }, err: io.ErrUnexpectedEOF},
		{about: "nor is a body that ends before its first byte", file: good, entry: VersionEntry{Version: 7},
			store: func(s *memStore) { s.cut = map[string]int{name: 0} }, err: io.ErrUnexpectedEOF},
		{about: "nor one of unknown size that breaks off", file: good, entry: VersionEntry{Version: 7, Size: -1},
			store: func(s *memStore) { s.cut, s.sizeless = map[string]int{name: 5}, true }, err: io.ErrUnexpectedEOF},
	} {
		t.Run(tc.about, func(t *testing.T) {
			t.Parallel()
			s := &memStore{objects: map[string][]byte{}}
			if tc.file != nil {
				s.objects[name] = tc.file
			}
			if tc.store != nil {
				tc.store(s)
			}
			tc.entry.Name = name
			m, err := ReadManifest(context.Background(), s, tc.entry)
			switch {
			case tc.corrupt:
				if c, ok := errors.AsType[*CorruptError](err); !ok || c.Name != name {
					t.Fatalf("error %v, want a *CorruptError that names the object", err)
				}
			case tc.err != nil:
				if !errors.Is(err, tc.err) || isCorrupt(err) {
					t.Fatalf("error %v, want %v", err, tc.err)
				}
			case err != nil:
				t.Fatal(err)
			case m.Version != 7:
				t.Errorf("version %d", m.Version)
			}
			if d := cmp.Diff([]string{"get " + name}, s.log); d != "" {
				t.Error("one request reads a manifest:", d)
			}
		})
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		about          string
		reader, writer uint64
		read, write    *FlagError
	}{
		{about: "no flags"},
		{about: "every flag that is understood", reader: 0x1b7, writer: 0x1bf},
		{about: "overlays are enumerated, and never written over", reader: 64, writer: 64, write: &FlagError{Word: "reader", Unknown: 64}},
		{about: "an overlay bit only writers see", writer: 64, write: &FlagError{Word: "writer", Unknown: 64}},
		{about: "an unknown reader bit may hide files", reader: 1 | 512, writer: 1, read: &FlagError{Word: "reader", Unknown: 512}, write: &FlagError{Word: "reader", Unknown: 512}},
		{about: "an unknown writer bit only stops writing", writer: 1 << 40, write: &FlagError{Word: "writer", Unknown: 1 << 40}},
		{about: "a half-set 256 is corrupt to the library", reader: 256, read: &FlagError{Word: "reader", HalfSet: true}, write: &FlagError{Word: "reader", HalfSet: true}},
		{about: "the other half too", writer: 256, read: &FlagError{Word: "reader", HalfSet: true}, write: &FlagError{Word: "reader", HalfSet: true}},
	} {
		m, err := DecodeManifest(manifestFile(vint(9, tc.reader), vint(10, tc.writer)))
		if err != nil {
			t.Fatal(err)
		}
		for what, got := range map[string]struct {
			err  error
			want *FlagError
		}{"reading": {m.CheckReaderFlags(), tc.read}, "writing": {m.CheckWriterFlags(), tc.write}} {
			f, _ := errors.AsType[*FlagError](got.err)
			if d := cmp.Diff(got.want, f); d != "" || (got.err == nil) != (got.want == nil) {
				t.Errorf("%s: %s: %v %s", tc.about, what, got.err, d)
			}
		}
	}
}

func TestBlobSidecarsExistOnlyForLiveBlobColumnsOfFormat22(t *testing.T) {
	t.Parallel()
	field := sub(1, str(2, "b"), vint(3, 5), str(5, "struct"), pair(10, "ARROW:extension:name", "lance.blob.v2"))
	plain := sub(1, str(2, "b"), vint(3, 5), str(5, "struct"), pair(10, "other", "lance.blob.v2"))
	file := func(minor uint64, fields ...int64) []byte {
		return fragment(0, sub(2, str(1, "x"), packed(2, fields...), vint(4, 2), vint(5, minor)))
	}
	for _, tc := range []struct {
		about  string
		fields [][]byte
		want   bool
	}{
		{"a blob column in format 2.2", [][]byte{field, file(2, 1, 5)}, true},
		{"an older writer stores it as a struct", [][]byte{field, file(1, 1, 5)}, false},
		{"no file has the column", [][]byte{field, file(2, 1)}, false},
		{"the column is a tombstone", [][]byte{field, file(2, 1, -2)}, false},
		{"another column", [][]byte{plain, file(2, 5)}, false},
	} {
		m, err := DecodeManifest(manifestFile(tc.fields...))
		if err != nil {
			t.Fatal(err)
		}
		if m.HasBlobV2() != tc.want {
			t.Errorf("%s: %v", tc.about, m.HasBlobV2())
		}
	}
}
