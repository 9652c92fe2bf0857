package report

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/reconcile"
)

const peerA, peerB = "s3://attachments-eu/", "https://b.internal/blobs/"

func blob(key, record string, size int64) reconcile.Reference {
	return reconcile.Reference{Role: reconcile.RoleBlob, Path: key, Record: record, Size: size, PhysicalRows: -1, LiveRows: -1}
}

// asked says what peers said: those of the first list have a copy, those of the last
// gave no answer.
func asked(having, no, silent []string) func(*reconcile.Finding) {
	return func(f *reconcile.Finding) {
		f.PeersAsked = append(append(append([]string{}, having...), no...), silent...)
		f.PeersHaving = having
		if len(having) > 0 {
			f.ProposedAction = reconcile.ActionRefetch
		}
		for _, p := range silent {
			f.BlockedBy = append(f.BlockedBy, reconcile.BlockedRungOpen+p)
		}
	}
}

func blockedBy(words ...string) func(*reconcile.Finding) {
	return func(f *reconcile.Finding) { f.BlockedBy = append(f.BlockedBy, words...) }
}

// copiesPass brought 320 of 344 lost blobs back, and has whatever peers can leave open
// on tables.
func copiesPass(t *testing.T) reconcile.Pass {
	p := emptyPass()
	p.Mode = "restore"
	blobs := addTarget(t, p, "blobs:attachments", "s3://attachments/", reconcile.StateDiverged, func(r *reconcile.TargetResult) {
		r.Kind, r.Store, r.References, r.Checked = "blobs", "s3://attachments/", 345, 345
	})
	for i := range 24 {
		blobs.find(blob(fmt.Sprintf("2026/01/%02d/a b.bin", i), fmt.Sprintf("rec-%d", i), 1000), reconcile.Lost, asked(nil, []string{peerA, peerB}, nil))
	}
	blobs.find(blob("still there.bin", "rec-90", 77), reconcile.Missing, asked([]string{peerA, peerB}, nil, nil)).
		find(blob("nobody knows.bin", strings.Repeat("rec-91 ", 40), 77), reconcile.Missing, asked(nil, []string{peerA}, []string{peerB})).
		find(blob("wrong record.bin", "rec-92", 77), reconcile.SizeMismatch, asked([]string{peerA}, nil, nil), blockedBy(reconcile.BlockedReplaceUnproven), func(f *reconcile.Finding) { f.ObservedSize = ptr(int64(78)) }).
		find(blob("half.bin", "rec-93", 77), reconcile.SizeMismatch, asked([]string{peerA}, nil, nil), blockedBy(reconcile.BlockedReplaceWouldLose), func(f *reconcile.Finding) { f.ObservedSize = ptr(int64(3)) }).
		find(blob("accepted.bin", "rec-94", 77), reconcile.Missing, asked([]string{peerA}, nil, nil), blockedBy(reconcile.BlockedAcknowledged)).
		find(blob("unasked.bin", "rec-95", 77), reconcile.Missing)
	gen := func(path string) reconcile.Reference {
		return reconcile.Reference{Role: reconcile.RoleWALGeneration, Path: "_mem_wal/0b/" + path, Version: 9, PhysicalRows: 50, LiveRows: 50}
	}
	sidecar := func(path string) reconcile.Reference {
		return reconcile.Reference{Role: reconcile.RoleBlobSidecar, Path: "data/7/" + path, Version: 9, HasFragment: true, FragmentID: 7, Size: 900, PhysicalRows: 10, LiveRows: 10}
	}
	const dr = "s3://rocketkeep-dr/"
	addTarget(t, p, "exp-1", "s3://rocketkeep/exp-1.rollout.lance", reconcile.StateIncomplete, func(r *reconcile.TargetResult) {
		r.Kind, r.Version = "rollout", ptr(uint64(9))
	}).
		find(dataFile(1, 500), reconcile.Missing, asked([]string{dr}, nil, nil)).
		find(dataFile(2, 500), reconcile.Missing, asked(nil, nil, []string{dr}), func(f *reconcile.Finding) { f.ProposedAction = reconcile.ActionDropFragment }).
		find(dataFile(3, 500), reconcile.Lost, asked(nil, []string{dr}, nil), func(f *reconcile.Finding) { f.ProposedAction = reconcile.ActionDropFragment }).
		find(gen("gen_1/data/a.lance"), reconcile.Missing, asked([]string{dr}, nil, nil)).
		find(gen("gen_2/data/b.lance"), reconcile.Lost, asked(nil, []string{dr}, nil)).
		find(gen("gen_3/data/c.lance"), reconcile.Missing).
		find(sidecar("1.blob"), reconcile.Missing, asked([]string{dr}, nil, nil)).
		find(sidecar("2.blob"), reconcile.Lost, asked(nil, []string{dr}, nil)).
		find(sidecar("3.blob"), reconcile.Missing)

	back := func(action reconcile.Action, source, proof string, bytes int64) reconcile.RepairOutcome {
		return reconcile.RepairOutcome{Target: "blobs:attachments", Store: "s3://attachments/", Action: action, State: "applied", Trigger: "manual",
			ReadVersion: ptr(uint64(1)), BytesRestored: &bytes, Source: &source, Proof: &proof, DurationMS: ptr(int64(12)), Files: []string{fmt.Sprintf("back %d.bin", len(p.Repairs))}}
	}
	for range 300 {
		p.Repairs = append(p.Repairs, back(reconcile.ActionRefetch, peerA, "checksum sha256", 1000))
	}
	failed := back(reconcile.ActionRefetch, peerB, "", 0)
	failed.State, failed.BytesRestored, failed.Proof, failed.Error = "failed", nil, nil, ptr(peerB+": the copy is not the object: 3 bytes of 1000")
	p.Repairs = append(p.Repairs, failed)
	for range 18 {
		p.Repairs = append(p.Repairs, back(reconcile.ActionRefetch, peerB, "agreement of "+peerA+" and "+peerB, 1000))
	}
	for i := range 2 {
		r := back(reconcile.ActionRestore, fmt.Sprintf("version 3sL4kqtJlcpXroDTDmJ%d", i), "size, footer, rows", 4096)
		r.Target, r.Store = "exp-1", "rocketkeep"
		p.Repairs = append(p.Repairs, r)
	}
	one := back(reconcile.ActionRestore, "version null", "checksum md5", 5)
	undo := back(reconcile.ActionRestore, "undo:01a227b7", "", 0)
	undo.Files, undo.BytesRestored, undo.Proof, undo.DurationMS, undo.CommittedVersion, undo.TransactionUUID = nil, nil, nil, nil, ptr(uint64(10)), ptr("5f0c")
	refused := back(reconcile.ActionRefetch, peerA, "checksum crc32c", 0)
	refused.State, refused.BytesRestored, refused.Error = "refused", nil, ptr("replace_would_lose_bytes: the bucket keeps no versions and no quarantine is configured")
	p.Repairs = append(p.Repairs, one, undo, refused)
	for _, r := range p.Repairs {
		if r.BytesRestored != nil {
			p.Totals.BytesRestored += *r.BytesRestored
		}
	}
	return finish(p, reconcile.ExitDivergence)
}

func TestWhatCameBackIsSummedUp(t *testing.T) {
	t.Parallel()
	p := copiesPass(t)
	out := textOf(t, p, TextOptions{Width: 200})
	for _, want := range []string{
		"findings, 321 objects brought back.\n",
		"  blobs:attachments: refetch applied, 300 objects, 300,000 bytes (293.0 KiB) brought back from s3://attachments-eu/, proven by checksum sha256: back 0.bin, back 1.bin, back 2.bin and 297 more\n",
		"  blobs:attachments: refetch failed, back 300.bin, source https://b.internal/blobs/, error: https://b.internal/blobs/: the copy is not the object: 3 bytes of 1000\n",
		"  exp-1: restore applied, 2 objects, 8,192 bytes (8.0 KiB) brought back from older versions, proven by size, footer, rows: back 319.bin, back 320.bin\n",
		"  blobs:attachments: restore applied, 1 object, 5 bytes brought back from version null, proven by checksum md5: back 321.bin\n",
		"  blobs:attachments: restore applied, from version 1, made version 10\n",
		"  restored    brought back 321 objects, 326,197 bytes (318.6 KiB)\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("not said: %s", want)
		}
	}
	if n, bytes := broughtBack(p); n != 321 || bytes != p.Totals.BytesRestored {
		t.Errorf("%d objects and %d bytes came back, the totals say %d", n, bytes, p.Totals.BytesRestored)
	}
	const left = "left for the next pass by the budget"
	if strings.Contains(out, left) {
		t.Error("the budget left nothing")
	}
	p.Totals.RefetchDeferred = 1234
	if out := textOf(t, p, TextOptions{}); !strings.Contains(out, "  copies      1,234 objects "+left+"\n") {
		t.Errorf("not said what the budget left:\n%s", out)
	}
	p.Totals.RefetchDeferred = 0
	p.Repairs = nil
	if out := textOf(t, p, TextOptions{}); strings.Contains(out, "brought back") || strings.Contains(out, "restored") {
		t.Error("something came back although nothing did")
	}
}

// What is said of peers must not read as a no where there was none.
func TestSilenceIsNoAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name               string
		verdict            reconcile.Verdict
		having, no, silent []string
		want               string
	}{
		{"nobody was asked", reconcile.Missing, nil, nil, nil, ""},
		{"all said no", reconcile.Lost, nil, []string{"a", "b"}, nil, "no peer has it: asked a, b"},
		{"one has it", reconcile.Missing, []string{"b"}, []string{"a"}, nil, "a peer has a copy: b"},
		{"two have it", reconcile.Missing, []string{"a", "b"}, nil, nil, "peers have copies: a, b"},
		{"one is silent", reconcile.Missing, nil, nil, []string{"a"}, "no answer from a"},
		{"one said no and one is silent", reconcile.Missing, nil, []string{"a"}, []string{"b"}, "not at a, no answer from b"},
		{"one has it and one is silent", reconcile.Missing, []string{"a"}, nil, []string{"b"}, "a peer has a copy: a, no answer from b"},
		{"many", reconcile.Lost, nil, []string{"a", "b", "c", "d", "e"}, nil, "no peer has it: asked a, b, c and 2 more"},
	} {
		f := reconcile.Finding{Verdict: c.verdict}
		asked(c.having, c.no, c.silent)(&f)
		if got := strings.Join(peerWords(&f), ", "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if s := (&group{key: keyOf(&f), findings: []*reconcile.Finding{&f}}); (s.key.copies == peerSilent) != (len(c.silent) > 0 && len(c.having) == 0) {
			t.Errorf("%s: copies %d", c.name, s.key.copies)
		}
	}
}

// Copies do not change the step of what no repair writes, nor of what is no damage.
func TestCopiesOfMetadataAreNotFetched(t *testing.T) {
	t.Parallel()
	for _, role := range reconcile.Roles() {
		for _, v := range reconcile.Verdicts()[1:] {
			for c := copyAtPeer; c <= copyWaits; c++ {
				s := testSubject(reconcile.StateDiverged)
				s.finding, s.verdict, s.role, s.copies, s.peers = true, v, role, c, []string{peerA}
				a := adviser{canRepair: true, canRestore: true}
				got := a.next(s)
				checkAdvice(t, v.String()+" / "+role.String(), got, true)
				s.copies, s.peers = copiesUnknown, nil
				if other := metadataRole(role) || !v.Damaged() || v == reconcile.Archived; other != equalAdvice(got, a.next(s)) {
					t.Errorf("%s %s, copies %d: %q", role, v, c, got.text)
				}
			}
		}
	}
}

// An object that waits for its next attempt says so, and not that a peer is silent.
func TestAnObjectThatWaitsSaysUntilWhen(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 13, 45, 0, 0, time.UTC)
	waits := func(at *time.Time) func(*reconcile.Finding) {
		return func(f *reconcile.Finding) {
			f.BlockedBy, f.RetryAt = append(f.BlockedBy, reconcile.BlockedCoolingDown), at
		}
	}
	for _, c := range []struct {
		name    string
		verdict reconcile.Verdict
		set     []func(*reconcile.Finding)
		want    string
	}{
		{"a restore", reconcile.Recoverable, []func(*reconcile.Finding){func(f *reconcile.Finding) { f.ProposedAction = reconcile.ActionRestore }, waits(&at)}, "is due at 2026-01-02 13:45 UTC. To try at once:"},
		{"a copy of a peer", reconcile.Missing, []func(*reconcile.Finding){asked([]string{peerA}, nil, nil), waits(&at)}, "is due at 2026-01-02 13:45 UTC. To try at once:"},
		{"by the ledger alone", reconcile.Missing, []func(*reconcile.Finding){asked([]string{peerA}, nil, nil), waits(nil)}, "it is left alone for a while. To try at once:"},
	} {
		p := emptyPass()
		addTarget(t, p, "blobs:attachments", "s3://attachments/", reconcile.StateDiverged, func(r *reconcile.TargetResult) { r.Kind = "blobs" }).
			find(blob("a.bin", "rec", 77), c.verdict, c.set...)
		out := strings.Join(strings.Fields(strings.ReplaceAll(textOf(t, *p, TextOptions{CanRepair: true, CanRestore: true}), nbsp, " ")), " ")
		if !strings.Contains(out, c.want) || !strings.Contains(out, "repair blobs:attachments") || strings.Contains(out, "no answer") {
			t.Errorf("%s: %s", c.name, out)
		}
	}
}

// The command that puts an older version back names exactly that version, whatever is in
// its key.
func TestAnOlderVersionIsCopiedBackByItsId(t *testing.T) {
	t.Parallel()
	f := reconcile.Finding{Role: reconcile.RoleWALGeneration, Verdict: reconcile.Recoverable, Restorable: true, RestorableVersion: "3/L4+x", URL: "s3://rk/a b/x+y's.manifest"}
	g := &group{key: keyOf(&f), findings: []*reconcile.Finding{&f}}
	want := `aws s3api copy-object --bucket rk --key 'a b/x+y'\''s.manifest' --copy-source 'rk/a%20b/x%2By%27s.manifest?versionId=3%2FL4%2Bx'`
	if got := g.copyBack(); !g.key.byHand || len(got) != 1 || got[0] != want {
		t.Errorf("%q\n%q", got, want)
	}
	f.ProposedAction = reconcile.ActionRestore
	if keyOf(&f).byHand {
		t.Error("a repair brings it back")
	}
	f.URL = "file:///srv/x.manifest"
	if got := g.copyBack(); len(got) != 0 {
		t.Errorf("on files: %q", got)
	}
}

// What a repair of the pass brought back, or dropped, is not advised again, while the
// rest of its target is.
func TestWhatWasRepairedIsNotAdvisedAgain(t *testing.T) {
	t.Parallel()
	restore := func(f *reconcile.Finding) { f.ProposedAction, f.Restorable = reconcile.ActionRestore, true }
	pass := func(state string) reconcile.Pass {
		p := emptyPass()
		addTarget(t, p, "blobs:attachments", "s3://attachments/", reconcile.StateDiverged, func(r *reconcile.TargetResult) { r.Kind, r.Store = "blobs", "s3://attachments/" }).
			find(blob("a.bin", "rec", 77), reconcile.Recoverable, restore).
			find(blob("b.bin", "rec", 77), reconcile.Lost, asked(nil, []string{peerA}, nil))
		p.Repairs = []reconcile.RepairOutcome{{Target: "blobs:attachments", Store: "s3://attachments/", Action: reconcile.ActionRestore, State: state, Files: []string{"a.bin"},
			BytesRestored: ptr(int64(77)), Source: ptr("version 1"), Proof: ptr("checksum md5")}}
		return *p
	}
	for state, again := range map[string]bool{"applied": false, "failed": true} {
		out := textOf(t, pass(state), TextOptions{CanRepair: true, CanRestore: true})
		if strings.Contains(out, "reconcile repair ") != again || strings.Contains(out, "took care of it") == again || !strings.Contains(out, "No version is left") {
			t.Errorf("%s:\n%s", state, out)
		}
		repairs := out[strings.Index(out, "\nRepairs"):]
		if !strings.Contains(repairs, "a.bin") {
			t.Errorf("%s: the repair does not name its object:\n%s", state, repairs)
		}
	}
}
