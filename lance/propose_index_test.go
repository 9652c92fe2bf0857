package lance

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// entry is an IndexMetadata field of an index section.
func entry(name string, more ...[]byte) []byte {
	return sub(1, append([][]byte{uuidBytes(name[:1]), str(3, name)}, more...)...)
}

// idOf is the uuid that uuidBytes encodes.
func idOf(letter string) string {
	h := strings.Repeat(hexOf(letter[0]), 16)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func hexOf(b byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[b>>4], digits[b&15]})
}

// indexed is a version 8 with an index section and bytes in front of it.
func indexedFile(t testing.TB, front string, section []byte, more ...[]byte) []byte {
	t.Helper()
	file := manifestWith(section, pb(str(2, "u"), sub(100)), append([][]byte{
		sub(1, str(2, "id")), fragment(0, vint(4, 5)), fragment(1, vint(4, 5), sub(3, vint(4, 1))), vint(3, 8), vint(9, 1), vint(10, 1), vint(11, 1), writer}, more...)...)
	if front == "" {
		return file
	}
	m := mustDecode(t, file)
	body := pb(append([][]byte{sub(1, str(2, "id")), fragment(0, vint(4, 5)), vint(3, 8), vint(11, 1), writer, vint(6, uint64(len(front)))}, more...)...)
	out := slices.Concat([]byte(front), m.Raw()[:4+len(section)], prefixed(body))
	pos := len(front) + 4 + len(section)
	return append(out, byte(pos), byte(pos>>8), 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 'L', 'A', 'N', 'C')
}

func TestDroppingAnIndexWritesTheSectionWithoutIt(t *testing.T) {
	t.Parallel()
	a, b, c := entry("a_idx", str(5, "coverage"), str(500, "unknown")), entry("b_idx", vint(8, 77)), entry("c_idx")
	section := pb(a, b, str(9, "unknown"), c)
	m := mustDecode(t, indexedFile(t, "", section))
	p := propose(t)(m.ProposeDropIndex(idOf("b"), commitInfo()))
	n := mustDecode(t, p.Manifest())
	if d := cmp.Diff(pb(a, str(9, "unknown"), c), n.indexSection); d != "" {
		t.Error(d)
	}
	// as real transactions of the npm releases 0.22.3, 0.31.0 and 0.39.0 have it
	want := pb(vint(1, 8), str(2, commitUUID), pair(4, "reconcile.operation", "create_index"), pair(4, "reconcile.repair_id", "r1"),
		sub(103, sub(2, uuidBytes("b"), str(3, "b_idx"), vint(8, 77))))
	if d := cmp.Diff(want, p.Transaction()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(only(t, m.msg, 1, 2, 9, 10, 11, 13), only(t, n.msg, 1, 2, 9, 10, 11, 13)); d != "" {
		t.Error(d)
	}
	if got := only(t, n.msg, 6); len(got) != 1 || got[0] != string(vint(6, 0)) {
		t.Errorf("offset of the index section %x", got)
	}
}

func TestWithoutItsLastIndexATableHasNoSection(t *testing.T) {
	t.Parallel()
	m := mustDecode(t, indexedFile(t, "", entry("a_idx")))
	n := mustDecode(t, propose(t)(m.ProposeDropIndex(idOf("a"), commitInfo())).Manifest())
	if got := only(t, n.msg, 6); got != nil || n.indexSection != nil || string(n.Raw()[:4+len(n.txnSection)]) != string(prefixed(n.txnSection)) {
		t.Errorf("offset %x", got)
	}
	m = mustDecode(t, indexedFile(t, "", pb(entry("a_idx"), str(9, "unknown"))))
	n = mustDecode(t, propose(t)(m.ProposeDropIndex(idOf("a"), commitInfo())).Manifest())
	if string(n.indexSection) != string(str(9, "unknown")) {
		t.Error("what is not known in a section is kept with it")
	}
}

func TestDictionariesStayInFrontOfANewIndexSection(t *testing.T) {
	t.Parallel()
	const front = "dictionary values"
	m := mustDecode(t, indexedFile(t, front, pb(entry("a_idx"), entry("b_idx"))))
	p := propose(t)(m.ProposeDropIndex(idOf("a"), commitInfo()))
	if want := front + string(prefixed(entry("b_idx"))) + string(prefixed(p.Transaction())); !strings.HasPrefix(string(p.Manifest()), want) {
		t.Errorf("%q", p.Manifest())
	}
}

func TestTheFlagOfCoveringIndicesGoesWithTheLast(t *testing.T) {
	t.Parallel()
	flags := pb(vint(9, 129), vint(10, 129))
	covering := packed(11, 3)
	for _, tc := range []struct {
		about   string
		section []byte
		flags   []byte
		want    uint64
	}{
		{"another one covers", pb(entry("a_idx", covering), entry("b_idx", covering)), flags, 129},
		{"none does", pb(entry("a_idx", covering), entry("b_idx")), flags, 1},
		{"it was not set", pb(entry("a_idx", covering), entry("b_idx", covering)), nil, 1},
	} {
		m := mustDecode(t, indexedFile(t, "", tc.section, tc.flags))
		n := mustDecode(t, propose(t)(m.ProposeDropIndex(idOf("a"), commitInfo())).Manifest())
		if n.ReaderFlags != tc.want || n.WriterFlags != tc.want {
			t.Errorf("%s: %d/%d", tc.about, n.ReaderFlags, n.WriterFlags)
		}
	}
}

func TestProposeDropIndexRefuses(t *testing.T) {
	t.Parallel()
	wal := sub(1, uuidBytes("w"), str(3, MemWALIndex), sub(6, str(1, "/lance.table.MemWalIndexDetails"), sub(2, str(8, "b_idx"))))
	reuse := sub(1, uuidBytes("r"), str(3, FragReuseIndex))
	section := pb(entry("a_idx"), entry("b_idx"), wal, reuse, entry("d_idx"), entry("d_idx", vint(4, 1)))
	m := mustDecode(t, indexedFile(t, "", section))
	for about, id := range map[string]string{"a uuid that is not there": idOf("x"), "no uuid": "", "the MemWAL": idOf("w"), "the fragment reuse index": idOf("r"),
		"an index that the MemWAL maintains": idOf("b"), "a uuid of two entries": idOf("d")} {
		if _, err := m.ProposeDropIndex(id, commitInfo()); !isRefused(err) {
			t.Errorf("%s: %v", about, err)
		}
	}
	propose(t)(m.ProposeDropIndex(idOf("a"), commitInfo()))

	body := prefixed(pb(vint(3, 1), vint(6, 0), writer))
	gap := slices.Concat(prefixed(entry("a_idx")), []byte("gap"))
	file := slices.Concat(gap, body)
	file = append(file, byte(len(gap)), 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 'L', 'A', 'N', 'C')
	if _, err := mustDecode(t, file).ProposeDropIndex(idOf("a"), commitInfo()); !isRefused(err) {
		t.Errorf("bytes behind the section: %v", err)
	}
	if _, err := mustDecode(t, plainFile()).ProposeDropIndex(idOf("a"), commitInfo()); !isRefused(err) {
		t.Errorf("no section: %v", err)
	}
}
