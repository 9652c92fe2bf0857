package lance

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestDecodeTransaction(t *testing.T) {
	t.Parallel()
	// The first case is a real delete of a whole fragment, its uuid zeroed.
	real, err := hex.DecodeString("08051224" + strings.Repeat("30", 36) + "aa061b" + "120102" + "1a16" + hex.EncodeToString([]byte("id >= 200 and id < 300")))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		about string
		b     []byte
		want  Transaction
	}{
		{"a real delete", real, Transaction{ReadVersion: 5, UUID: strings.Repeat("0", 36), Operation: OpDelete, DeletedFragmentIDs: []uint64{2}, Predicate: "id >= 200 and id < 300"}},
		{"properties and tag", pb(str(3, "t"), pair(4, "k", "v"), pair(4, "__lance_commit_message", "m"), sub(100)),
			Transaction{Tag: "t", Properties: map[string]string{"k": "v", "__lance_commit_message": "m"}, Operation: OpAppend}},
		{"a delete of rows", sub(101, sub(1, vint(1, 4)), sub(1), vint(2, 7), vint(2, 8)),
			Transaction{Operation: OpDelete, UpdatedFragmentIDs: []uint64{4, 0}, DeletedFragmentIDs: []uint64{7, 8}}},
		{"an update", sub(108, packed(1, 3, 300), sub(2, vint(1, 5)), sub(3, vint(1, 9))),
			Transaction{Operation: OpUpdate, DeletedFragmentIDs: []uint64{3, 300}, UpdatedFragmentIDs: []uint64{5}}},
		{"a compaction, old and new form", sub(104, sub(1, vint(1, 1)), sub(3, sub(1, vint(1, 2)), sub(2, vint(1, 9)), sub(1, vint(1, 3)))),
			Transaction{Operation: OpRewrite, DeletedFragmentIDs: []uint64{1, 2, 3}}},
		{"a merge", sub(105, sub(1, vint(1, 6))), Transaction{Operation: OpMerge, UpdatedFragmentIDs: []uint64{6}}},
		{"a data replacement", sub(111, sub(1, vint(1, 6), sub(2))), Transaction{Operation: OpDataReplacement, UpdatedFragmentIDs: []uint64{6}}},
		{"an overlay", sub(115, sub(1, vint(1, 6))), Transaction{Operation: OpDataOverlay, UpdatedFragmentIDs: []uint64{6}}},
		{"an overwrite names new fragments only", sub(102, sub(1, vint(1, 6))), Transaction{Operation: OpOverwrite}},
		{"an operation of a later release", sub(150, str(1, "x")), Transaction{Operation: 150}},
		{"of two operations the last counts", pb(sub(101, vint(2, 1), str(3, "p")), sub(106, vint(1, 2))), Transaction{Operation: OpRestore}},
	} {
		tc.want.Raw = tc.b
		got, err := DecodeTransaction(tc.b)
		if d := cmp.Diff(tc.want, got, cmpopts.EquateEmpty()); err != nil || d != "" {
			t.Errorf("%s: %v %s", tc.about, err, d)
		}
	}
	for about, b := range map[string][]byte{"empty": nil, "no operation": pb(vint(1, 1), str(2, "u")), "cut": real[:len(real)-1],
		"a uuid that is a number": pb(vint(2, 1), sub(100)), "an operation that is a number": vint(101, 1),
		"broken ids": sub(101, str(2, "\xff")), "a fragment that is a number": sub(101, vint(1, 1)), "a group that is a number": sub(104, vint(3, 1)),
		"a broken group": sub(104, str(3, "\xff"))} {
		if _, err := DecodeTransaction(b); !isCorrupt(err) {
			t.Errorf("%s: %v, want a *CorruptError", about, err)
		}
	}
}

func TestOperationNames(t *testing.T) {
	t.Parallel()
	for op, want := range map[Operation]string{OpAppend: "append", OpDelete: "delete", OpDataOverlay: "data_overlay", 116: "operation 116", 0: "operation 0"} {
		if op.String() != want {
			t.Errorf("%d = %s", int(op), op)
		}
	}
}
