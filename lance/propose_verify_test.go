package lance

import (
	"encoding/binary"
	"slices"
	"testing"
)

// proposals are one of each kind, with what was asked for.
func proposals(t *testing.T) map[string]struct {
	old *Manifest
	c   change
	p   *Proposal
} {
	t.Helper()
	type made = struct {
		old *Manifest
		c   change
		p   *Proposal
	}
	section := pb(entry("a_idx", str(5, bitmapOf(t, 0))), entry("b_idx", packed(11, 1)), str(9, "unknown"))
	old := mustDecode(t, indexedFile(t, "", section, vint(9, 129), vint(10, 129), str(77, "unknown"), pair(19, "k", "v")))
	dropped := mustDecode(t, propose(t)(mustDecode(t, plainFile()).ProposeDelete([]uint64{2}, "", commitInfo())).Manifest())
	raw := rawOf(t, mustDecode(t, plainFile()), 2)
	var entryA []byte
	for x := range old.Indices() {
		if x.Name == "a_idx" {
			entryA = x.Raw
		}
	}
	return map[string]made{
		"delete": {old, change{operation: OpDelete, drop: []uint64{1}}, propose(t)(old.ProposeDelete([]uint64{1}, "", commitInfo()))},
		"drop":   {old, change{operation: OpCreateIndex, dropIndex: entryA}, propose(t)(old.ProposeDropIndex(idOf("a"), commitInfo()))},
		"add":    {dropped, change{operation: OpAppend, add: []newFragment{{2, raw[0], false}}}, propose(t)(dropped.ProposeAddFragments(raw, nil, commitInfo()))},
	}
}

// Every byte of a new manifest means something: whichever is wrong is found out
// before anything is sent.
func TestNoByteOfANewManifestCanBeWrong(t *testing.T) {
	t.Parallel()
	for kind, made := range proposals(t) {
		if err := made.old.verify(made.p, made.c, commitInfo()); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		for i := range made.p.manifest {
			for bit := range 8 {
				p := *made.p
				p.manifest = slices.Clone(p.manifest)
				p.manifest[i] ^= 1 << bit
				if err := made.old.verify(&p, made.c, commitInfo()); err == nil {
					t.Errorf("%s: bit %d of byte %d of %d may be wrong", kind, bit, i, len(p.manifest))
				}
			}
		}
		for i := range made.p.transaction {
			p := *made.p
			p.transaction = slices.Clone(p.transaction)
			p.transaction[i] ^= 1
			if err := made.old.verify(&p, made.c, commitInfo()); err == nil {
				t.Errorf("%s: byte %d of the transaction may be wrong", kind, i)
			}
		}
	}
}

// reframe makes the file of a proposal anew with another message.
func reframe(t *testing.T, p *Proposal, edit func(raws []string) []string) *Proposal {
	t.Helper()
	m := mustDecode(t, p.manifest)
	_, raws := rawFields(t, m.msg)
	out := slices.Concat(m.file[:m.pos], prefixed(pb(split(edit(raws))...)))
	out = binary.LittleEndian.AppendUint64(out, uint64(m.pos))
	q := *p
	q.manifest = append(out, m.file[len(m.file)-8:]...)
	return &q
}

func TestNoFieldOfANewManifestCanBeLackingOrDoubled(t *testing.T) {
	t.Parallel()
	for kind, made := range proposals(t) {
		_, raws := rawFields(t, newMessage(t, made.p))
		for i, raw := range raws {
			for about, edit := range map[string]func([]string) []string{
				"lacking": func(r []string) []string { return slices.Delete(slices.Clone(r), i, i+1) },
				"doubled": func(r []string) []string { return slices.Insert(slices.Clone(r), i, raw) },
			} {
				q := reframe(t, made.p, edit)
				if err := made.old.verify(q, made.c, commitInfo()); err == nil {
					t.Errorf("%s: field %x %s", kind, raw, about)
				}
			}
		}
		for about, more := range map[string][]byte{"a fragment": fragment(9, vint(4, 1)), "an unknown field": str(99, "x"), "a flag": vint(9, 512), "a tag": str(8, "t"), "aux data": vint(4, 7)} {
			q := reframe(t, made.p, func(r []string) []string { return append(slices.Clone(r), string(more)) })
			if err := made.old.verify(q, made.c, commitInfo()); err == nil {
				t.Errorf("%s: %s more", kind, about)
			}
		}
	}
}

func TestAProposalOfSomethingElseIsFoundOut(t *testing.T) {
	t.Parallel()
	made := proposals(t)
	if err := made["delete"].old.verify(made["delete"].p, change{operation: OpDelete, drop: []uint64{0}}, commitInfo()); err == nil {
		t.Error("another fragment")
	}
	if err := made["delete"].old.verify(made["delete"].p, change{operation: OpDelete, drop: []uint64{0, 1}}, commitInfo()); err == nil {
		t.Error("one fragment of two")
	}
	if err := made["drop"].old.verify(made["drop"].p, change{operation: OpCreateIndex, dropIndex: []byte("x")}, commitInfo()); err == nil {
		t.Error("another entry")
	}
	if err := made["add"].old.verify(made["add"].p, change{operation: OpAppend, add: []newFragment{{2, []byte("x"), false}}}, commitInfo()); err == nil {
		t.Error("another message")
	}
	for about, spoil := range map[string]func(*Proposal){
		"the name":             func(p *Proposal) { p.ManifestName = ManifestName(7, V2) },
		"the naming":           func(p *Proposal) { p.ManifestName = ManifestName(p.Version, V1) },
		"the version":          func(p *Proposal) { p.Version++ },
		"the read version":     func(p *Proposal) { p.ReadVersion-- },
		"the transaction file": func(p *Proposal) { p.TransactionName += "x" },
	} {
		p := *made["delete"].p
		spoil(&p)
		if err := made["delete"].old.verify(&p, made["delete"].c, commitInfo()); err == nil {
			t.Errorf("%s may be wrong", about)
		}
	}
}
