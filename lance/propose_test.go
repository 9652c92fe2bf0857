package lance

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
)

const commitUUID = "d11ca5b3-3c0e-4b3f-9d0e-0123456789ab"

// commitInfo is that of a repair at a fixed time.
func commitInfo() CommitInfo {
	return CommitInfo{UUID: commitUUID, Naming: V2, Now: time.Unix(1795951516, 345848941), Properties: map[string]string{RepairIDProperty: "r1"}}
}

// rawFields splits a message, without the code under test.
func rawFields(t testing.TB, b []byte) (nums []protowire.Number, raws []string) {
	t.Helper()
	for len(b) > 0 {
		num, _, n := protowire.ConsumeField(b)
		if n < 0 {
			t.Fatalf("broken message: %v", protowire.ParseError(n))
		}
		nums, raws, b = append(nums, num), append(raws, string(b[:n])), b[n:]
	}
	return nums, raws
}

// only are the raw fields of a message with one of these numbers, in order.
func only(t testing.TB, b []byte, wanted ...protowire.Number) (out []string) {
	t.Helper()
	nums, raws := rawFields(t, b)
	for i, num := range nums {
		if slices.Contains(wanted, num) {
			out = append(out, raws[i])
		}
	}
	return out
}

// apart are the raw fields with none of these numbers.
func apart(t testing.TB, b []byte, unwanted ...protowire.Number) (out []string) {
	t.Helper()
	nums, raws := rawFields(t, b)
	for i, num := range nums {
		if !slices.Contains(unwanted, num) {
			out = append(out, raws[i])
		}
	}
	return out
}

// likewise orders the entries of maps, which the library writes in any order.
func likewise(raws []string) []string {
	maps := map[string][]string{}
	for _, r := range raws {
		if tag := mapTag(r); tag != "" {
			maps[tag] = append(maps[tag], r)
		}
	}
	out := slices.Clone(raws)
	for i, r := range out {
		if tag := mapTag(r); tag != "" {
			slices.Sort(maps[tag])
			out[i], maps[tag] = maps[tag][0], maps[tag][1:]
		}
	}
	return out
}

// mapTag is the tag of a map field of the Manifest message, empty for others.
func mapTag(raw string) string {
	num, _, n := protowire.ConsumeTag([]byte(raw))
	if num == 5 || num == 16 || num == 19 {
		return raw[:n]
	}
	return ""
}

var writer = sub(13, str(1, "lance"), str(2, "12.0.0"))

// plain is a version 5 with the fragments 0, 1 (deletion file), 2 and 3.
func plainFile(more ...[]byte) []byte {
	return manifestWith(nil, pb(vint(1, 4), str(2, "a792ad67"), sub(101, packed(2, 9))), slices.Concat([][]byte{
		sub(1, str(2, "id"), str(5, "int32"), vint(4, ^uint64(0))),
		fragment(0, sub(2, dataFile("a", 60, []int64{0})), vint(4, 5)),
		fragment(1, sub(2, dataFile("b", 60, []int64{0})), sub(3, vint(2, 4), vint(3, 8), vint(4, 1)), vint(4, 5)),
		fragment(2, sub(2, dataFile("c", 60, []int64{0})), vint(4, 5)),
		fragment(3, sub(2, dataFile("d", 60, []int64{0})), vint(4, 5)),
		vint(3, 5), sub(7, vint(1, 1795951516), vint(2, 342381966)), vint(9, 1), vint(10, 1), vint(11, 3), str(12, "4-a792ad67.txn"), writer,
		sub(15, str(1, "lance"), str(2, "2.1"))}, more)...)
}

// propose fails the test when there is no proposal.
func propose(t testing.TB) func(*Proposal, error) *Proposal {
	return func(p *Proposal, err error) *Proposal {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}

func TestADeleteHasTheBytesOfTheRecipe(t *testing.T) {
	t.Parallel()
	m := mustDecode(t, plainFile())
	info := commitInfo()
	info.Message = "two files are lost"
	p := propose(t)(m.ProposeDelete([]uint64{3, 2, 3}, "lost", info))
	txn := pb(vint(1, 5), str(2, commitUUID),
		pair(4, "__lance_commit_message", "two files are lost"), pair(4, "reconcile.operation", "delete"), pair(4, "reconcile.repair_id", "r1"),
		sub(101, packed(2, 2, 3), str(3, "lost")))
	msg := pb(
		sub(1, str(2, "id"), str(5, "int32"), vint(4, ^uint64(0))),
		fragment(0, sub(2, dataFile("a", 60, []int64{0})), vint(4, 5)),
		fragment(1, sub(2, dataFile("b", 60, []int64{0})), sub(3, vint(2, 4), vint(3, 8), vint(4, 1)), vint(4, 5)),
		vint(3, 6), sub(7, vint(1, 1795951516), vint(2, 345848941)), vint(9, 1), vint(10, 1), vint(11, 3), str(12, "5-"+commitUUID+".txn"), writer,
		sub(15, str(1, "lance"), str(2, "2.1")), vint(21, 0))
	want := slices.Concat(prefixed(txn), prefixed(msg))
	want = binary.LittleEndian.AppendUint64(want, uint64(4+len(txn)))
	want = append(want, 0, 0, 2, 0, 'L', 'A', 'N', 'C')
	if d := cmp.Diff(want, p.Manifest()); d != "" {
		t.Error(d)
	}
	if string(p.Transaction()) != string(txn) {
		t.Errorf("transaction %x", p.Transaction())
	}
	got := []any{p.ReadVersion, p.Version, p.Operation, p.TransactionUUID, p.TransactionName, p.ManifestName}
	if d := cmp.Diff([]any{uint64(5), uint64(6), OpDelete, commitUUID, "_transactions/5-" + commitUUID + ".txn", "_versions/18446744073709551609.manifest"}, got); d != "" {
		t.Error(d)
	}
	if string(m.Raw()) != string(plainFile()) {
		t.Error("the old manifest was changed")
	}
}

func TestNamesKeepTheNamingOfTheSet(t *testing.T) {
	t.Parallel()
	info := commitInfo()
	info.Naming = V1
	if p := propose(t)(mustDecode(t, plainFile()).ProposeDelete([]uint64{0}, "", info)); p.ManifestName != "_versions/6.manifest" {
		t.Error(p.ManifestName)
	}
}

func TestReadVersionZeroIsNotWritten(t *testing.T) {
	t.Parallel()
	p := propose(t)(mustDecode(t, manifestFile(fragment(0, vint(4, 1)), writer)).ProposeDelete([]uint64{0}, "", commitInfo()))
	if nums, _ := rawFields(t, p.Transaction()); nums[0] != 2 {
		t.Errorf("the transaction begins with field %d", nums[0])
	}
	if p.Version != 1 || !strings.HasPrefix(p.TransactionName, "_transactions/0-") {
		t.Errorf("version %d, %s", p.Version, p.TransactionName)
	}
}

// newMessage is the Manifest message of a proposal.
func newMessage(t testing.TB, p *Proposal) []byte {
	t.Helper()
	msg, _ := mustDecode(t, p.Manifest()).Message()
	return msg
}

func TestFlagsOfANewVersion(t *testing.T) {
	t.Parallel()
	base := sub(18, vint(1, 1), vint(3, 1), str(4, "/b"))
	for _, tc := range []struct {
		about          string
		reader, writer uint64
		more           [][]byte
		drop           []uint64
		wantR, wantW   uint64
	}{
		{"the flag of deletion files goes with the last one", 1, 1, nil, []uint64{1}, 0, 0},
		{"and stays while another has one", 1, 1, nil, []uint64{0}, 1, 1},
		{"and comes back where it was lost", 0, 0, nil, []uint64{0}, 1, 1},
		{"stable row ids stay", 3, 3, nil, []uint64{1}, 2, 2},
		{"also when nothing is left", 3, 3, nil, []uint64{0, 1, 2, 3}, 2, 2},
		{"the deprecated flag stays", 5, 5, nil, []uint64{1}, 4, 4},
		{"configuration stays with its entries", 1, 9, [][]byte{pair(16, "k", "v")}, []uint64{1}, 0, 8},
		{"and goes without any", 1, 9, nil, []uint64{1}, 0, 0},
		{"base paths stay", 17, 25, [][]byte{base, pair(16, "k", "v")}, []uint64{1}, 16, 24},
		{"a transaction file is written, so there are some", 33, 33, nil, []uint64{1}, 0, 0},
		{"covering indices stay", 129, 129, nil, []uint64{1}, 128, 128},
		{"mixed file versions stay", 257, 257, nil, []uint64{1}, 256, 256},
	} {
		file := pb(fragment(0, vint(4, 1)), fragment(1, vint(4, 2), sub(3, vint(2, 1), vint(4, 1))), fragment(2, vint(4, 1)), fragment(3, vint(4, 1)),
			vint(3, 4), vint(9, tc.reader), vint(10, tc.writer), writer)
		m := mustDecode(t, manifestFile(append([][]byte{file}, tc.more...)...))
		p := propose(t)(m.ProposeDelete(tc.drop, "", commitInfo()))
		n := mustDecode(t, p.Manifest())
		if n.ReaderFlags != tc.wantR || n.WriterFlags != tc.wantW {
			t.Errorf("%s: %d/%d became %d/%d, want %d/%d", tc.about, tc.reader, tc.writer, n.ReaderFlags, n.WriterFlags, tc.wantR, tc.wantW)
		}
		if zero := len(only(t, newMessage(t, p), 9)) == 0; zero != (tc.wantR == 0) {
			t.Errorf("%s: a word of zero is not written", tc.about)
		}
	}
}

func TestTheHighestFragmentIDNeverGoesDown(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		about string
		more  []byte
		want  uint32
	}{
		{"kept as it is", vint(11, 9), 9}, {"taken from the old list where there was none", nil, 7}, {"raised where it was too low", vint(11, 2), 7},
		{"zero is a number", vint(11, 0), 7},
	} {
		m := mustDecode(t, manifestFile(fragment(3, vint(4, 1)), fragment(7, vint(4, 1)), vint(3, 1), tc.more, writer))
		n := mustDecode(t, propose(t)(m.ProposeDelete([]uint64{7}, "", commitInfo())).Manifest())
		if n.MaxFragmentID == nil || *n.MaxFragmentID != tc.want {
			t.Errorf("%s: %v", tc.about, n.MaxFragmentID)
		}
	}
}

func TestWhatIsNotKnownSurvivesWhereItStands(t *testing.T) {
	t.Parallel()
	long := protowire.AppendTag(nil, 99, protowire.VarintType)
	long = append(long, 0x81, 0x80, 0x00) // 1 in three bytes
	legacy := fragment(1, str(900, "in a fragment"), vint(4, 3))
	front := []byte("dictionary values")
	body := pb(str(1000, "first"), writer, vint(4, 7), fragment(2, vint(4, 1)), str(8, "tag"), legacy, long, vint(3, 1), vint(3, 8),
		pair(5, "meta", "\xff"), pair(19, "k", "v"), str(20, "dev"), vint(14, 20), vint(12000, 1))
	file := slices.Concat(front, prefixed(body))
	file = binary.LittleEndian.AppendUint64(file, uint64(len(front)))
	file = append(file, 0, 0, 1, 0, 'L', 'A', 'N', 'C')
	p := propose(t)(mustDecode(t, file).ProposeDelete([]uint64{2}, "", commitInfo()))

	want := []string{string(str(1000, "first")), string(writer), string(legacy), string(long), string(pair(5, "meta", "\xff")),
		string(pair(19, "k", "v")), string(str(20, "dev")), string(vint(14, 20)), string(vint(12000, 1))}
	if d := cmp.Diff(want, apart(t, newMessage(t, p), 3, 7, 11, 12, 21)); d != "" {
		t.Error(d)
	}
	if got := only(t, newMessage(t, p), 3, 4, 8); len(got) != 1 || got[0] != string(vint(3, 9)) {
		t.Errorf("the fields of one commit: %q", got)
	}
	if !strings.HasPrefix(string(p.Manifest()), string(front)+string(prefixed(p.Transaction()))) {
		t.Error("the bytes in front did not stay in front")
	}
	if n := mustDecode(t, p.Manifest()); n.FooterMinor != 1 || n.Version != 9 {
		t.Errorf("footer 0.%d, version %d", n.FooterMinor, n.Version)
	}
}

// As the library does, so that a reader of old versions does not choke on it.
func TestAHugeTransactionIsKeptInItsFileOnly(t *testing.T) {
	t.Parallel()
	p := propose(t)(mustDecode(t, plainFile()).ProposeDelete([]uint64{0}, strings.Repeat("x", 20<<20), commitInfo()))
	n := mustDecode(t, p.Manifest())
	if _, ok, _ := n.InlineTransaction(); ok || len(only(t, n.msg, 21)) > 0 || len(p.Manifest()) > 1000 {
		t.Errorf("inline: %v, %d bytes", ok, len(p.Manifest()))
	}
	if n.TransactionFile != "5-"+commitUUID+".txn" || !n.madeBy(commitUUID) {
		t.Errorf("it names %s", n.TransactionFile)
	}
}

func isRefused(err error) bool { _, ok := errors.AsType[*RefusedError](err); return ok }
func isFlag(err error) bool    { _, ok := errors.AsType[*FlagError](err); return ok }

func TestProposeDeleteRefuses(t *testing.T) {
	t.Parallel()
	one := fragment(0, vint(4, 1))
	index := prefixed(sub(1, uuidBytes("a"), str(3, "i")))
	txn := prefixed(pb(str(2, "u"), sub(100)))
	// framed puts bytes in front of a message.
	framed := func(front []byte, fields ...[]byte) []byte {
		b := slices.Concat(front, prefixed(pb(fields...)))
		return append(binary.LittleEndian.AppendUint64(b, uint64(len(front))), 0, 0, 2, 0, 'L', 'A', 'N', 'C')
	}
	for _, tc := range []struct {
		about string
		file  []byte
		ids   []uint64
		is    func(error) bool
	}{
		{"an id that is not there", plainFile(), []uint64{0, 4}, isRefused},
		{"no id", plainFile(), nil, isRefused},
		{"an empty table", manifestFile(vint(3, 1), writer), []uint64{0}, isRefused},
		{"two fragments of one id", manifestFile(one, fragment(1), one, vint(3, 1), writer), []uint64{1}, isRefused},
		{"no writer", manifestFile(one, vint(3, 1)), []uint64{0}, isRefused},
		{"an empty writer", manifestFile(one, vint(3, 1), sub(13)), []uint64{0}, isRefused},
		{"an id beyond 32 bits", manifestFile(one, fragment(1<<32), vint(3, 1), writer), []uint64{0}, isRefused},
		{"the last version", manifestFile(one, vint(3, math.MaxUint64), writer), []uint64{0}, isRefused},
		{"a detached version", manifestFile(one, vint(3, 1<<63), writer), []uint64{0}, isRefused},
		{"the version before those", manifestFile(one, vint(3, 1<<63-1), writer), []uint64{0}, isRefused},
		{"overlays", manifestFile(one, vint(3, 1), vint(9, 64), vint(10, 64), writer), []uint64{0}, isFlag},
		{"overlays without a flag", manifestFile(fragment(0, sub(11, sub(1, dataFile("o", 1, nil)))), vint(3, 1), writer), []uint64{0}, isRefused},
		{"an unknown flag of readers", manifestFile(one, vint(3, 1), vint(9, 512), writer), []uint64{0}, isFlag},
		{"an unknown flag of writers", manifestFile(one, vint(3, 1), vint(10, 1<<40), writer), []uint64{0}, isFlag},
		{"mixed versions set in one word", manifestFile(one, vint(3, 1), vint(10, 256), writer), []uint64{0}, isFlag},
		{"a second dataset", manifestFile(one, vint(3, 1), vint(17, 2), writer), []uint64{0}, isRefused},
		{"an index section behind the transaction", framed(slices.Concat(txn, index), one, vint(3, 1), vint(21, 0), vint(6, uint64(len(txn))), writer), []uint64{0}, isRefused},
		{"bytes behind the transaction", framed(append(slices.Clone(txn), 'x'), one, vint(3, 1), vint(21, 0), writer), []uint64{0}, isRefused},
		{"a dictionary behind the index section", framed(index, one, vint(3, 1), vint(6, 0), sub(1, sub(8, vint(1, 5), vint(2, 3))), writer), []uint64{0}, isRefused},
	} {
		m := mustDecode(t, tc.file)
		if _, err := m.ProposeDelete(tc.ids, "", commitInfo()); !tc.is(err) {
			t.Errorf("%s: %v", tc.about, err)
		}
	}
}

func TestCommitInfoMustBeWhole(t *testing.T) {
	t.Parallel()
	m := mustDecode(t, plainFile())
	for about, spoil := range map[string]func(*CommitInfo){
		"no uuid":                      func(c *CommitInfo) { c.UUID = "" },
		"a uuid without hyphens":       func(c *CommitInfo) { c.UUID = strings.Repeat("0", 32) },
		"hyphens elsewhere":            func(c *CommitInfo) { c.UUID = "0-00000-0000-0000-00000000000000000000"[:36] },
		"a uuid in capitals":           func(c *CommitInfo) { c.UUID = strings.ToUpper(commitUUID) },
		"a path":                       func(c *CommitInfo) { c.UUID = "../../" + commitUUID[6:] },
		"no naming":                    func(c *CommitInfo) { c.Naming = 0 },
		"no time":                      func(c *CommitInfo) { c.Now = time.Time{} },
		"a property of the library":    func(c *CommitInfo) { c.Properties = map[string]string{"__lance_commit_message": "x"} },
		"the property of this package": func(c *CommitInfo) { c.Properties = map[string]string{operationProperty: "x"} },
		"a property that is not UTF-8": func(c *CommitInfo) { c.Properties = map[string]string{"k": "\xff"} },
		"a message that is not UTF-8":  func(c *CommitInfo) { c.Message = "\xff" },
	} {
		info := commitInfo()
		spoil(&info)
		if _, err := m.ProposeDelete([]uint64{0}, "", info); err == nil {
			t.Errorf("%s: accepted", about)
		}
	}
	if _, err := m.ProposeDelete([]uint64{0}, "\xff", commitInfo()); err == nil {
		t.Error("a predicate that is not UTF-8: accepted")
	}
}

func TestOwnTransaction(t *testing.T) {
	t.Parallel()
	info := commitInfo()
	info.Properties = nil
	m := mustDecode(t, plainFile())
	own, err := DecodeTransaction(propose(t)(m.ProposeDelete([]uint64{0}, "", info)).Transaction())
	if err != nil || !OwnTransaction(own) {
		t.Errorf("a transaction without a repair id: %v", err)
	}
	theirs, ok, err := m.InlineTransaction()
	if err != nil || !ok || OwnTransaction(theirs) {
		t.Errorf("a transaction of the library: %v", err)
	}
	if OwnTransaction(Transaction{Properties: map[string]string{"reconciled": "x", "__lance_commit_message": "reconcile.x"}}) {
		t.Error("a property that looks like one")
	}
}
