package lance

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"
)

// unknownField is a field that this package knows nothing of.
func unknownField(t *rapid.T) []byte {
	num := protowire.Number(rapid.IntRange(500, 1<<20).Draw(t, "number"))
	switch rapid.IntRange(0, 3).Draw(t, "type") {
	case 0:
		return vint(num, rapid.Uint64().Draw(t, "varint"))
	case 1:
		return protowire.AppendFixed64(protowire.AppendTag(nil, num, protowire.Fixed64Type), 7)
	case 2:
		return protowire.AppendFixed32(protowire.AppendTag(nil, num, protowire.Fixed32Type), 7)
	}
	return str(num, rapid.StringN(0, 9, 9).Draw(t, "bytes"))
}

// strewn puts unknown fields between the given ones, and shuffles all of them when
// the order does not matter to a reader.
func strewn(t *rapid.T, shuffle bool, fields ...[]byte) []byte {
	for range rapid.IntRange(0, 2).Draw(t, "unknown") {
		i := rapid.IntRange(0, len(fields)).Draw(t, "at")
		fields = slices.Insert(slices.Clone(fields), i, unknownField(t))
	}
	if shuffle {
		fields = rapid.Permutation(fields).Draw(t, "order")
	}
	return pb(fields...)
}

// anyTable is a manifest file of any shape a writer could make, with its fragment ids
// and the uuids of its index entries.
func anyTable(t *rapid.T) (file []byte, ids []uint64, uuids []string) {
	shuffle := rapid.Bool().Draw(t, "shuffle")
	stable := rapid.Bool().Draw(t, "stable row ids")
	ids = rapid.SliceOfNDistinct(rapid.Uint64Range(0, 300), 1, 12, rapid.ID[uint64]).Draw(t, "ids")
	if !shuffle {
		slices.Sort(ids)
	}
	highest := slices.Max(ids)
	body := [][]byte{sub(1, str(2, "id"), vint(4, ^uint64(0))), vint(3, rapid.Uint64Range(0, 1<<40).Draw(t, "version")), writer,
		sub(15, str(1, "lance"), str(2, "2.1"))}
	flags := uint64(0)
	for _, id := range ids {
		parts := [][]byte{vint(1, id), sub(2, dataFile(fmt.Sprintf("%d.lance", id), 60, []int64{0})), vint(4, 3)}
		if rapid.Bool().Draw(t, "deletion file") {
			flags |= 1
			parts = append(parts, sub(3, vint(2, 1), vint(4, 1)))
		}
		if stable {
			parts = append(parts, str(5, "\x0a\x00"))
		}
		body = append(body, str(2, string(strewn(t, false, parts...))))
	}
	if stable {
		flags |= 2
	}
	body = append(body, vint(9, flags), vint(10, flags))
	if rapid.Bool().Draw(t, "highest id") {
		body = append(body, vint(11, highest+rapid.Uint64Range(0, 3).Draw(t, "more")))
	}
	var section []byte
	for _, letter := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 4, rapid.ID[string]).Draw(t, "indices") {
		uuids = append(uuids, idOf(letter))
		section = append(section, str(1, string(strewn(t, false, uuidBytes(letter), str(3, letter+"_idx"), str(5, "any"))))...)
	}
	front := rapid.SampledFrom([]string{"", "dictionary values"}).Draw(t, "front")
	out := []byte(front)
	if len(uuids) > 0 {
		body = append(body, vint(6, uint64(len(out))))
		out = append(out, prefixed(section)...)
	}
	if rapid.Bool().Draw(t, "inline transaction") {
		body = append(body, vint(21, uint64(len(out))))
		out = append(out, prefixed(pb(str(2, "u"), sub(100)))...)
	}
	pos := len(out)
	out = append(out, prefixed(strewn(t, shuffle, body...))...)
	return append(binary.LittleEndian.AppendUint64(out, uint64(pos)), 0, 0, 2, 0, 'L', 'A', 'N', 'C'), ids, uuids
}

// checkNew compares two manifests by their raw fields: all but a commit's own are
// equal and in order, and the fragments are the wanted ones.
func checkNew(t testing.TB, old, n *Manifest, fragments []string) {
	t.Helper()
	own := []protowire.Number{2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 21}
	if a, b := apart(t, old.msg, own...), apart(t, n.msg, own...); !slices.Equal(a, b) {
		t.Fatalf("other fields changed:\n%q\n%q", a, b)
	}
	if got := only(t, n.msg, 2); !slices.Equal(fragments, got) {
		t.Fatalf("fragments are\n%q, want\n%q", got, fragments)
	}
	if n.Version != old.Version+1 || n.MaxFragmentID == nil || old.MaxFragmentID != nil && *old.MaxFragmentID > *n.MaxFragmentID {
		t.Fatalf("version %d, highest id %v", n.Version, n.MaxFragmentID)
	}
	want := old.ReaderFlags &^ 1
	if n.Summary.DeletionFiles > 0 {
		want |= 1
	}
	if n.ReaderFlags != want || n.WriterFlags != want {
		t.Fatalf("flags %d/%d, want %d", n.ReaderFlags, n.WriterFlags, want)
	}
	if len(only(t, n.msg, 4, 8)) > 0 || len(only(t, n.msg, 3)) != 1 || len(only(t, n.msg, 12)) != 1 {
		t.Fatal("a field of one commit is there or doubled")
	}
}

func TestAnyDropOfAnyTableChangesNothingElse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		file, ids, uuids := anyTable(rt)
		old := mustDecode(t, file)
		chosen := rapid.SliceOfNDistinct(rapid.SampledFrom(ids), 1, len(ids), rapid.ID[uint64]).Draw(rt, "dropped")
		raws, order := only(t, old.msg, 2), idsOf(t, old)
		var kept []string
		for i, r := range raws {
			if !slices.Contains(chosen, order[i]) {
				kept = append(kept, r)
			}
		}
		p := propose(t)(old.ProposeDelete(chosen, "", commitInfo()))
		n := mustDecode(t, p.Manifest())
		checkNew(t, old, n, kept)
		if cut := old.cut(); string(n.file[:cut]) != string(old.file[:cut]) || string(n.txnSection) != string(p.Transaction()) {
			t.Fatal("the bytes in front of the transaction changed")
		}

		back := mustDecode(t, propose(t)(n.ProposeAddFragments(rawOf(t, old, chosen...), uuids, commitInfo())).Manifest())
		restored := raws
		if !slices.IsSorted(order) {
			restored = only(t, back.msg, 2) // an unsorted list comes back in another order
			a, b := slices.Clone(raws), slices.Clone(restored)
			slices.Sort(a)
			slices.Sort(b)
			if !slices.Equal(a, b) {
				t.Fatalf("the undo lost a fragment: %q", restored)
			}
		}
		checkNew(t, n, back, restored)
		same, err := SameFragments(old, back, ids)
		if err != nil || !slices.Equal(same, ids) {
			t.Fatalf("after the undo %v of %v are the same, %v", same, ids, err)
		}
		if len(uuids) == 0 {
			return
		}
		gone := rapid.SampledFrom(uuids).Draw(rt, "index")
		m := mustDecode(t, propose(t)(old.ProposeDropIndex(gone, commitInfo())).Manifest())
		checkNew(t, old, m, raws)
		var want []string
		for i, e := range only(t, old.indexSection, 1) {
			if uuids[i] != gone {
				want = append(want, e)
			}
		}
		if got := only(t, m.indexSection, 1); !slices.Equal(want, got) {
			t.Fatalf("index entries are %q, want %q", got, want)
		}
		if front := int(*old.indexOffset); string(m.file[:front]) != string(old.file[:front]) {
			t.Fatal("the bytes in front of the index section changed")
		}
	})
}

func idsOf(t testing.TB, m *Manifest) (ids []uint64) {
	t.Helper()
	for f, err := range m.Fragments() {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, f.ID)
	}
	return ids
}
