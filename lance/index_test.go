package lance

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestIndices(t *testing.T) {
	t.Parallel()
	id := pb(sub(1, str(1, "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\xff")))
	first := pb(id, packed(2, 3, 4), str(3, "v_idx"), vint(4, 9), str(5, "bitmap"),
		sub(6, str(1, "/lance.index.pb.VectorIndexDetails"), str(2, "details")), vint(7, 2), vint(9, 0), sub(10, str(1, "index.idx"), vint(2, 4)))
	second := pb(id, vint(2, 8))
	m := mustDecode(t, manifestWith(pb(str(1, string(first)), str(1, string(second)), sub(1, id, str(3, MemWALIndex))), nil,
		sub(1, vint(3, 3), str(5, "fixed_size_list:float:8")), sub(1, vint(3, 8), str(5, "string"))))
	var got []Index
	for x, err := range m.Indices() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, x)
	}
	const uuid = "00010203-0405-0607-0809-0a0b0c0d0eff"
	two := int32(2)
	want := []Index{
		{UUID: uuid, Name: "v_idx", Fields: []int32{3, 4}, DatasetVersion: 9, Files: []IndexFile{{"index.idx", 4}}, HasBase: true,
			DetailsType: "VectorIndexDetails", Details: []byte("details"), Version: &two, FragmentBitmap: []byte("bitmap"), Raw: first, fieldType: "fixed_size_list:float:8"},
		{UUID: uuid, Fields: []int32{8}, Raw: second, fieldType: "string"},
		{UUID: uuid, Name: MemWALIndex, Raw: pb(id, str(3, MemWALIndex))},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(Index{}), cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
	if !m.HasMemWAL() {
		t.Error("a MemWAL entry is a MemWAL")
	}
}

func TestSignature(t *testing.T) {
	t.Parallel()
	one, zero := int32(1), int32(0)
	btree := []string{"page_data.lance", "page_lookup.lance"}
	bitmap := []string{"bitmap_page_lookup.lance"}
	text := []string{"docs.lance", "invert.lance", "tokens.lance"}
	both := []string{"auxiliary.idx", "index.idx"}
	for _, tc := range []struct {
		about  string
		index  Index
		listed []string
		must   []string
		known  bool
	}{
		{"a BTree has two files, whatever is listed", Index{DetailsType: "BTreeIndexDetails"}, nil, btree, true},
		{"type names compare without case", Index{DetailsType: "btreeindexdetails"}, []string{"page_data.lance"}, btree, true},
		{"a bitmap has one", Index{DetailsType: "BitmapIndexDetails"}, nil, bitmap, true},
		{"a label list has the same one", Index{DetailsType: "LabelListIndexDetails"}, nil, bitmap, true},
		{"an old vector index certainly has its first file", Index{DetailsType: "VectorIndexDetails"}, nil, []string{"index.idx"}, true},
		{"a later commit gives an old one the number 0", Index{DetailsType: "VectorIndexDetails", Version: &zero}, []string{"index.idx"}, []string{"index.idx"}, true},
		{"a second file that is there belongs to it", Index{DetailsType: "VectorIndexDetails"}, []string{"auxiliary.idx"}, both, true},
		{"from Lance 0.39 every vector index has both", Index{DetailsType: "VectorIndexDetails", Version: &one}, nil, both, true},
		{"an old full-text index is known by any of its files", Index{DetailsType: "InvertedIndexDetails"}, []string{"docs.lance"}, text, true},
		{"the same after a later commit", Index{DetailsType: "InvertedIndexDetails", Version: &zero}, []string{"tokens.lance"}, text, true},
		{"without any, it may be old or new", Index{DetailsType: "InvertedIndexDetails"}, nil, nil, false},
		{"a numbered one has its metadata", Index{DetailsType: "InvertedIndexDetails", Version: &one}, nil, []string{"metadata.lance"}, true},
		{"one file of a partition speaks for all three", Index{DetailsType: "InvertedIndexDetails", Version: &one}, []string{"metadata.lance", "part_2_docs.lance"},
			[]string{"metadata.lance", "part_2_docs.lance", "part_2_invert.lance", "part_2_tokens.lance"}, true},
		{"and for the metadata", Index{DetailsType: "InvertedIndexDetails"}, []string{"part_10_invert.lance", "part_x_docs.lance", "part_1_other.lance", "part_"},
			[]string{"metadata.lance", "part_10_docs.lance", "part_10_invert.lance", "part_10_tokens.lance"}, true},
		{"without details, a fixed size list can only have a vector index", Index{fieldType: "fixed_size_list:float:16"}, nil, []string{"index.idx"}, true},
		{"and a list a label list", Index{fieldType: "list"}, nil, bitmap, true},
		{"a number may have a BTree or a bitmap", Index{fieldType: "int64"}, nil, nil, false},
		{"which one file tells", Index{fieldType: "int64"}, []string{"page_lookup.lance"}, btree, true},
		{"or the other", Index{fieldType: "string"}, []string{"bitmap_page_lookup.lance"}, bitmap, true},
		{"or the third", Index{fieldType: "string"}, []string{"invert.lance"}, text, true},
		{"foreign files tell nothing", Index{fieldType: "string"}, []string{"x.lance"}, nil, false},
		{"a type from elsewhere tells nothing", Index{DetailsType: "NGramIndexDetails"}, []string{"page_data.lance"}, nil, false},
		{"the MemWAL has no files", Index{Name: MemWALIndex, DetailsType: "MemWalIndexDetails"}, nil, nil, true},
	} {
		must, known := tc.index.Signature(tc.listed)
		if d := cmp.Diff(tc.must, must); d != "" || known != tc.known {
			t.Errorf("%s: known %v %s", tc.about, known, d)
		}
	}
}

// lanceFile is a whole file of format 2.0 without columns, whose schema has metadata.
func lanceFile(metadata ...[]byte) []byte {
	descriptor := sub(1, metadata...)
	b := bytes.Clone(descriptor)
	end := uint64(len(b))
	b = binary.LittleEndian.AppendUint64(b, 0) // global buffer 0: offset, size
	b = binary.LittleEndian.AppendUint64(b, end)
	for _, v := range []uint64{end, end, end} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = binary.LittleEndian.AppendUint32(b, 1)
	b = binary.LittleEndian.AppendUint32(b, 0)
	return append(b, 0, 0, 3, 0, 'L', 'A', 'N', 'C')
}

// legacyFile is a whole file of format 0.1.
func legacyFile(data string) []byte {
	b := append([]byte(data), prefixed([]byte("meta"))...)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(data)))
	return append(b, 0, 0, 1, 0, 'L', 'A', 'N', 'C')
}

func TestFindFilesLooksIntoWhatNamesLeaveOpen(t *testing.T) {
	t.Parallel()
	one := int32(1)
	broken := errors.New("no answer")
	const dir = "_indices/u/"
	vector := Index{DetailsType: "VectorIndexDetails"}
	text := Index{DetailsType: "InvertedIndexDetails", Version: &one}
	for _, tc := range []struct {
		about   string
		index   Index
		objects map[string][]byte
		fault   func(*memStore)
		must    []string
		listed  int
		known   bool
		err     error
	}{
		{about: "a vector index of format 0.1 is one file", index: vector, objects: map[string][]byte{dir + "index.idx": legacyFile("")},
			must: []string{"index.idx"}, listed: 1, known: true},
		{about: "of a later format it has lost its second", index: vector, objects: map[string][]byte{dir + "index.idx": lanceFile()},
			must: []string{"auxiliary.idx", "index.idx"}, listed: 1, known: true},
		{about: "a damaged one tells nothing more", index: vector, objects: map[string][]byte{dir + "index.idx": []byte("LANC")},
			must: []string{"index.idx"}, listed: 1, known: true},
		{about: "partitions that are listed nowhere but in the metadata", index: text, objects: map[string][]byte{dir + "metadata.lance": lanceFile(pair(5, "partitions", "[0,7]"))},
			must: []string{"metadata.lance", "part_0_docs.lance", "part_0_invert.lance", "part_0_tokens.lance", "part_7_docs.lance", "part_7_invert.lance", "part_7_tokens.lance"}, listed: 1, known: true},
		{about: "metadata without a list", index: text, objects: map[string][]byte{dir + "metadata.lance": lanceFile(pair(5, "params", "{}")), dir + "part_1_docs.lance": nil},
			must: []string{"metadata.lance", "part_1_docs.lance", "part_1_invert.lance", "part_1_tokens.lance"}, listed: 2, known: true},
		{about: "damaged metadata tells nothing more", index: text, objects: map[string][]byte{dir + "metadata.lance": legacyFile("")},
			must: []string{"metadata.lance"}, listed: 1, known: true},
		{about: "an empty folder proves nothing", index: Index{fieldType: "string"}, objects: map[string][]byte{"_indices/u2/page_data.lance": nil}},
		{about: "but a type still does", index: Index{DetailsType: "BTreeIndexDetails"}, must: []string{"page_data.lance", "page_lookup.lance"}, known: true},
		{about: "a listing that fails", index: vector, fault: func(s *memStore) { s.listErr = map[string]error{dir: broken} }, err: broken},
		{about: "a read that fails", index: vector, objects: map[string][]byte{dir + "index.idx": legacyFile("")},
			fault: func(s *memStore) { s.getErr = map[string]error{dir + "index.idx": broken} }, err: broken},
		{about: "a read that breaks off", index: text, objects: map[string][]byte{dir + "metadata.lance": lanceFile()},
			fault: func(s *memStore) { s.cut = map[string]int{dir + "metadata.lance": 3} }, err: errReadCut},
	} {
		t.Run(tc.about, func(t *testing.T) {
			t.Parallel()
			s := &memStore{objects: tc.objects}
			if tc.fault != nil {
				tc.fault(s)
			}
			must, listed, known, err := tc.index.FindFiles(context.Background(), s, dir)
			if !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if d := cmp.Diff(tc.must, must, cmpopts.EquateEmpty()); d != "" || listed != tc.listed || known != tc.known {
				t.Errorf("listed %d, known %v %s", listed, known, d)
			}
		})
	}
}
