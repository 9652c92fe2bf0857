package lance

import (
	"slices"
	"testing"
)

// refusal is an error that a proposal may end in: never one about its own result.
func refusal(err error) bool { return isRefused(err) || isFlag(err) || isCorrupt(err) }

// FuzzPropose derives versions from manifests that are as they happen to be.
// Whatever it does not refuse must be the old version less what was chosen.
func FuzzPropose(f *testing.F) {
	for _, pattern := range []string{"*/*/t.lance/_versions/*.manifest", "*/*/t.lance/tree/*/_versions/*.manifest"} {
		seeds(f, pattern, func(_ string, b []byte) {
			f.Add(b, uint64(1))
			f.Add(b, uint64(0x55))
		})
	}
	f.Add(plainFile(), uint64(2))
	f.Add(indexedFile(f, "", pb(entry("a_idx"), entry("b_idx", packed(11, 1)))), uint64(1))
	f.Add(indexedFile(f, "dictionary", entry("a_idx")), uint64(3))
	f.Fuzz(func(t *testing.T, file []byte, mask uint64) {
		old, err := DecodeManifest(file)
		if err != nil {
			return
		}
		var chosen []uint64
		var kept []string
		i := 0
		order := idsOf(t, old)
		for _, raw := range only(t, old.msg, 2) {
			if mask>>(i%64)&1 == 1 {
				chosen = append(chosen, order[i])
			} else {
				kept = append(kept, raw)
			}
			i++
		}
		p, err := old.ProposeDelete(chosen, "p", commitInfo())
		if err != nil {
			if !refusal(err) {
				t.Fatal(err)
			}
			return
		}
		n := mustDecode(t, p.Manifest())
		checkFuzzed(t, old, n, kept)
		if p, err = n.ProposeAddFragments(rawOf(t, old, chosen...), uuidsOf(t, old), commitInfo()); err == nil {
			back := mustDecode(t, p.Manifest())
			got := only(t, back.msg, 2)
			if len(got) != i {
				t.Fatalf("%d fragments, were %d", len(got), i)
			}
			checkFuzzed(t, n, back, got)
		} else if !refusal(err) {
			t.Fatal(err)
		}
		for _, id := range uuidsOf(t, old) {
			p, err := old.ProposeDropIndex(id, commitInfo())
			if err != nil {
				if !refusal(err) {
					t.Fatal(err)
				}
				continue
			}
			m := mustDecode(t, p.Manifest())
			checkFuzzed(t, old, m, only(t, old.msg, 2))
			if left := uuidsOf(t, m); len(left) != len(uuidsOf(t, old))-1 || slices.Contains(left, id) {
				t.Fatalf("index entries %v without %s", left, id)
			}
		}
	})
}

// checkFuzzed is checkNew for manifests whose flags need not fit their content.
func checkFuzzed(t *testing.T, old, n *Manifest, fragments []string) {
	t.Helper()
	if a, b := apart(t, old.msg, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 21), apart(t, n.msg, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 21); !slices.Equal(a, b) {
		t.Fatalf("other fields changed:\n%q\n%q", a, b)
	}
	if got := only(t, n.msg, 2); !slices.Equal(fragments, got) {
		t.Fatalf("fragments are\n%q, want\n%q", got, fragments)
	}
	if n.Version != old.Version+1 || n.CheckWriterFlags() != nil || (old.ReaderFlags&^n.ReaderFlags)&flagStableRowIDs != 0 {
		t.Fatalf("version %d, flags %d/%d from %d/%d", n.Version, n.ReaderFlags, n.WriterFlags, old.ReaderFlags, old.WriterFlags)
	}
}

func uuidsOf(t *testing.T, m *Manifest) (ids []string) {
	t.Helper()
	for x, err := range m.Indices() {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, x.UUID)
	}
	return ids
}
