package report

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/reconcile"
)

func textOf(t *testing.T, p reconcile.Pass, o TextOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := Text(&b, p, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// damagedPass has several kinds of damage on several targets, and more findings of
// one kind than a group shows.
func damagedPass(t *testing.T) reconcile.Pass {
	p := emptyPass()
	addTarget(t, p, "generic:clean", "s3://rocketkeep/clean.generic.lance", reconcile.StateClean)
	addTarget(t, p, "generic:quiet", "s3://rocketkeep/quiet.generic.lance", reconcile.StateClean).
		find(reconcile.Reference{Role: reconcile.RoleTransaction, Path: "_transactions/3-x.txn", Version: 4, PhysicalRows: -1, LiveRows: -1}, reconcile.Missing)
	orders := addTarget(t, p, "generic:orders", "s3://rocketkeep/orders.generic.lance", reconcile.StateDiverged, func(r *reconcile.TargetResult) {
		r.Version, r.References, r.Checked, r.RowsAtRisk = ptr(uint64(118)), 12_031, 12_031, ptr(int64(1_204_331))
		r.NotChecked = []reconcile.NotChecked{{Role: reconcile.RoleBlobSidecar, Count: ptr(int64(1200)), Reason: "not built in this version"}}
	})
	answer := func(f *reconcile.Finding) {
		f.Scopes, f.HTTPStatus, f.ErrorCode, f.RequestID = []string{"latest"}, ptr(404), ptr("NoSuchKey"), ptr("4442587FB7D0A2F9")
		f.ProposedAction = reconcile.ActionDropFragment
	}
	for i := range uint64(42) {
		orders.find(dataFile(i, 40_000), reconcile.Missing, answer, func(f *reconcile.Finding) { f.BlockedBy = []string{"over_limit"} })
	}
	orders.find(reconcile.Reference{Role: reconcile.RoleDeletion, Path: "_deletions/0-117-12345.arrow", Version: 118, HasFragment: true, FragmentID: 0, PhysicalRows: 40_005, LiveRows: 40_000}, reconcile.Recoverable, answer,
		func(f *reconcile.Finding) { f.RecoverableUntil = ptr(start.Add(72 * time.Hour)) })
	orders.find(dataFile(50, 7), reconcile.SizeMismatch, func(f *reconcile.Finding) {
		f.ObservedSize, f.Scopes = ptr(int64(3_000_000)), []string{"latest", "tag:golden", "version:12"}
	})
	addTarget(t, p, "table:archive/an unusually long table name that no column of eighty characters can hold", "file:///srv/it%27s%20here/archive/an%20unusually%20long%20table%20name.lance", reconcile.StateDiverged,
		func(r *reconcile.TargetResult) { r.Store, r.RowsAtRisk = "file:///srv/it%27s%20here", ptr(int64(0)) }).
		find(reconcile.Reference{Role: reconcile.RoleIndex, Path: "_indices/00112233-4455-6677-8899-aabbccddeeff/page_data.lance", Version: 2, PhysicalRows: -1, LiveRows: -1}, reconcile.Lost)
	addTarget(t, p, "generic:gone", "s3://rocketkeep/gone.generic.lance", reconcile.StateDiverged, func(r *reconcile.TargetResult) {
		r.Reason, r.RowsAtRisk = ptr(reconcile.ReasonEverythingMissing), ptr(int64(30))
	}).
		find(dataFile(0, 10), reconcile.Missing, answer, func(f *reconcile.Finding) { f.BlockedBy = []string{"everything_missing"} }).
		find(dataFile(1, 20), reconcile.Missing, answer, func(f *reconcile.Finding) { f.BlockedBy = []string{"everything_missing"} })
	return finish(p, reconcile.ExitDivergence)
}

// openPass has what could not be judged.
func openPass(t *testing.T) reconcile.Pass {
	p := emptyPass()
	p.Scope.Versions, p.Scope.Depth = reconcile.VersionsRetained, reconcile.DepthFooter
	addTarget(t, p, "generic:denied", "s3://rocketkeep/denied.generic.lance", reconcile.StateIncomplete, func(r *reconcile.TargetResult) {
		r.Checked = 8
	}).
		find(dataFile(1, 5), reconcile.Denied, func(f *reconcile.Finding) { f.HTTPStatus, f.ErrorCode = ptr(403), ptr("AccessDenied") }).
		find(reconcile.Reference{Role: reconcile.RoleData, Path: "data/y.lance", Version: 9, Location: loc(t, "s3://other/clone.lance/data/y.lance"), PhysicalRows: -1, LiveRows: -1}, reconcile.Denied, func(f *reconcile.Finding) {
			f.Reason = ptr(reconcile.ReasonBaseDenied)
		}).
		find(dataFile(2, 5), reconcile.Missing).
		find(dataFile(3, 5), reconcile.Undecided, func(f *reconcile.Finding) { f.Reason = ptr(reconcile.ReasonThrottled) }).
		find(reconcile.Reference{Role: reconcile.RoleData, Path: "data/far.lance", Reason: reconcile.ReasonUnknownBase, PhysicalRows: -1, LiveRows: -1}, reconcile.Undecided)
	addTarget(t, p, "generic:torn", "s3://rocketkeep/torn.generic.lance", reconcile.StateUnreadable, func(r *reconcile.TargetResult) {
		r.References, r.Checked, r.Reason = 0, 0, ptr(reconcile.ReasonBadManifest)
	}).
		find(reconcile.Reference{Role: reconcile.RoleManifest, Path: "_versions/18446744073709551497.manifest", PhysicalRows: -1, LiveRows: -1}, reconcile.Unreadable, func(f *reconcile.Finding) {
			f.ObservedSize = ptr(int64(0))
		})
	addTarget(t, p, "generic:half", "s3://rocketkeep/half.generic.lance", reconcile.StateHalfDeleted)
	addTarget(t, p, "generic:back", "s3://rocketkeep/back.generic.lance", reconcile.StateRolledBack, func(r *reconcile.TargetResult) { r.Version = ptr(uint64(7)) })
	addTarget(t, p, "generic:new", "s3://rocketkeep/new.generic.lance", reconcile.StatePending).
		find(dataFile(0, 5), reconcile.Pending)
	addTarget(t, p, "generic:future", "s3://rocketkeep/future.generic.lance", reconcile.StateUnreadable, func(r *reconcile.TargetResult) { r.Reason = ptr(reconcile.ReasonUnknownReaderFlags) })
	addTarget(t, p, "generic:same", "s3://rocketkeep/same.generic.lance", reconcile.StateLocked)
	addTarget(t, p, "generic:same", "s3://dr/same.generic.lance", reconcile.StateFailed, func(r *reconcile.TargetResult) { r.Store = "dr" })
	addTarget(t, p, "blobs:att*", "s3://attachments/", reconcile.StateIncomplete, func(r *reconcile.TargetResult) {
		r.Kind, r.Reason = "blobs", ptr(reconcile.ReasonControlsFailed)
		r.NotChecked = []reconcile.NotChecked{{Role: reconcile.RoleData, Reason: "target_timeout"}}
	})
	return finish(p, reconcile.ExitIncomplete)
}

var textCases = []struct {
	name string
	pass func(t *testing.T) reconcile.Pass
	opts TextOptions
}{
	{"clean", cleanPass, TextOptions{}},
	{"damaged", damagedPass, TextOptions{Command: Command{URIs: []string{"s3://rocketkeep/"}, Flags: []string{"--versions=retained", "--output=text", "--depth=head"}}}},
	{"damaged_can_repair", damagedPass, TextOptions{CanRepair: true, CanRestore: true}},
	{"open", openPass, TextOptions{Command: Command{URIs: []string{"s3://attachments/"}, Flags: []string{"--config=prod.yaml", "--confirm-after=10s"}}}},
	{"repaired", func(t *testing.T) reconcile.Pass {
		p := fullPass(t)
		p.Findings, p.Targets = nil, p.Targets[:1]
		p.Targets[0].State, p.Targets[0].Findings = reconcile.StateRepaired, 0
		p.Coverage, p.Totals = reconcile.Coverage{}, reconcile.Totals{}
		p = finish(&p, reconcile.ExitClean)
		p.Exit.Name = "repaired"
		p.ReportURI = ptr("s3://ops/reconcile/report=findings/pass_date=2026-01-31/pass_id=" + passID + "/part-00000.parquet")
		return p
	}, TextOptions{CanRepair: true, CanRestore: true}},
	{"copies", copiesPass, TextOptions{Command: Command{Flags: []string{"--config=prod.yaml"}}, CanRepair: true, CanRestore: true}},
	{"copies_look_only", copiesPass, TextOptions{Command: Command{Flags: []string{"--config=prod.yaml"}}}},
	{"nothing_to_check", func(*testing.T) reconcile.Pass { return finish(emptyPass(), reconcile.ExitFailed) }, TextOptions{}},
}

func TestTextIsAsAgreed(t *testing.T) {
	t.Parallel()
	for _, c := range textCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			golden(t, "testdata/text_"+c.name+".golden", []byte(textOf(t, c.pass(t), c.opts)))
		})
	}
}

// ownLine tells whether a line holds nothing but a path, a URI, a right or a command.
func ownLine(p reconcile.Pass, line string) bool {
	s := strings.TrimSpace(line)
	if strings.HasPrefix(s, "reconcile ") || strings.HasPrefix(s, "s3:") || p.ReportURI != nil && s == *p.ReportURI {
		return true
	}
	for _, r := range p.Targets {
		if s == r.URI {
			return true
		}
	}
	for _, f := range p.Findings {
		if s == f.Path || s == f.URL {
			return true
		}
	}
	return false
}

func TestLinesFitTheWidth(t *testing.T) {
	t.Parallel()
	for _, c := range textCases {
		for _, width := range []int{0, 60, 100, 10} {
			for _, verbose := range []bool{false, true} {
				opts, p := c.opts, c.pass(t)
				opts.Width, opts.Verbose = width, verbose
				limit := map[int]int{0: 80, 10: 60}[width]
				if limit == 0 {
					limit = width
				}
				for _, line := range strings.Split(textOf(t, p, opts), "\n") {
					if runes(line) > limit && !ownLine(p, line) {
						t.Errorf("%s at width %d: %d characters: %s", c.name, width, runes(line), line)
					}
					if strings.TrimRight(line, " ") != line {
						t.Errorf("%s at width %d: blanks at the end: %q", c.name, width, line)
					}
				}
			}
		}
	}
}

func TestNoColourUnlessAskedForAndThenOnlyColour(t *testing.T) {
	t.Parallel()
	escape := regexp.MustCompile("\x1b\\[[0-9;]*m")
	for _, c := range textCases {
		plainText := textOf(t, c.pass(t), c.opts)
		if strings.Contains(plainText, "\x1b") {
			t.Errorf("%s: an escape without colour", c.name)
		}
		opts := c.opts
		opts.Color = true
		coloured := textOf(t, c.pass(t), opts)
		if !escape.MatchString(coloured) {
			t.Errorf("%s: no colour", c.name)
		}
		if got := escape.ReplaceAllString(coloured, ""); got != plainText {
			t.Errorf("%s: colour changes the text", c.name)
		}
	}
}

// What stands in names, answers and reasons may come from anyone.
func TestNothingThatAnEvilNameHoldsReachesTheTerminal(t *testing.T) {
	t.Parallel()
	const evil = "x\x1b]0;owned\a\r\n\u202ey\xff\u009b2J"
	p := emptyPass()
	s := addTarget(t, p, evil, "s3://rocketkeep/"+evil+".lance", reconcile.StateDiverged, func(r *reconcile.TargetResult) {
		r.Reason, r.Store, r.Registry = ptr(evil), evil, ptr(evil)
		r.NotChecked = []reconcile.NotChecked{{Role: reconcile.RoleData, Reason: evil}}
	})
	for _, v := range reconcile.Verdicts()[1:] {
		s.find(reconcile.Reference{Role: reconcile.RoleData, Path: evil, Version: 1, PhysicalRows: -1, LiveRows: -1}, v, func(f *reconcile.Finding) {
			f.Reason, f.ErrorCode, f.RequestID = ptr(evil), ptr(evil), ptr(evil)
			f.Scopes, f.BlockedBy, f.ColumnsLost, f.ColumnsKept, f.PeersHaving = []string{evil}, []string{evil}, []string{evil}, []string{evil}, []string{evil}
			f.Record, f.PeersAsked = ptr(evil), []string{evil}
			switch v { // each has its own words for peers
			case reconcile.Lost:
				f.PeersHaving, f.BlockedBy = nil, nil
			case reconcile.SizeMismatch:
				f.BlockedBy = []string{reconcile.BlockedRungOpen + evil}
			case reconcile.Missing:
				f.BlockedBy, f.ProposedAction = nil, reconcile.ActionRefetch
			}
		})
	}
	p.Repairs = []reconcile.RepairOutcome{{Target: evil, Store: evil, State: evil, Error: ptr(evil)},
		{Target: evil, Store: evil, Action: reconcile.ActionRefetch, State: evil, Files: []string{evil}, Source: ptr(evil), Proof: ptr(evil)},
		{Target: evil, Store: evil, Action: reconcile.ActionRefetch, State: "applied", Files: []string{evil}, Source: ptr(evil), Proof: ptr(evil), BytesRestored: ptr(int64(1))}}
	p.ReportURI, p.Scope.TargetsFilter = ptr(evil), []string{evil}
	out := textOf(t, finish(p, reconcile.ExitDivergence), TextOptions{Command: Command{URIs: []string{evil}, Flags: []string{"--config=" + evil}}, CanRepair: true, CanRestore: true})
	for _, r := range out {
		if r != '\n' && (r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x202e || r == '\uFFFD') {
			t.Fatalf("%U reached the terminal:\n%q", r, out)
		}
	}
}

func TestWhatIsLeftOutIsCounted(t *testing.T) {
	t.Parallel()
	p := damagedPass(t)
	short := textOf(t, p, TextOptions{})
	if !strings.Contains(short, "… and 37 more (--report URI or --output json lists all)") {
		t.Errorf("37 findings are left out without a word:\n%s", short)
	}
	long := textOf(t, p, TextOptions{Verbose: true})
	for _, f := range p.Findings {
		if !strings.Contains(long, "    "+f.Path+"\n") {
			t.Errorf("verbose leaves out %s", f.Path)
		}
	}
	if strings.Contains(long, "more") && strings.Contains(long, "lists all") {
		t.Error("verbose leaves something out")
	}

	many := emptyPass()
	for i := range 60 {
		addTarget(t, many, fmt.Sprintf("generic:t%02d", i), fmt.Sprintf("s3://rocketkeep/t%02d.generic.lance", i), reconcile.StateHalfDeleted)
	}
	pass := finish(many, reconcile.ExitIncomplete)
	for _, want := range []string{"… and 20 more that are not clean", "… and 35 targets more"} {
		if out := textOf(t, pass, TextOptions{}); !strings.Contains(out, want) {
			t.Errorf("not said: %s\n%s", want, out)
		}
	}
	pass.FindingsTruncated = true
	if out := textOf(t, pass, TextOptions{}); !strings.Contains(out, "Only the first 0 findings were kept") {
		t.Error("a cut document is not spoken of")
	}
}

func TestTheFirstLineTellsOutcomeAndExit(t *testing.T) {
	t.Parallel()
	for _, d := range reconcile.ExitDocs() {
		p := damagedPass(t)
		p.Exit = reconcile.Exit{Code: d.Code, Name: d.Name}
		line, _, _ := strings.Cut(textOf(t, p, TextOptions{Width: 200}), "\n")
		if !strings.Contains(line, fmt.Sprintf(" (exit %d, %s): ", d.Code, d.Name)) || strings.HasSuffix(line, ": .") {
			t.Errorf("exit %d: %q", d.Code, line)
		}
		// Damage is there in this pass: no exit may read as if all were well.
		if strings.Contains(line, "are there") {
			t.Errorf("exit %d claims that all is there: %q", d.Code, line)
		}
	}
	// Findings without effect and acknowledged damage are not "all are there" either.
	p := cleanPass(t)
	if out := textOf(t, p, TextOptions{}); !strings.HasPrefix(out, "Clean (exit 0, clean): all 20 references of 2 targets are there.\n") {
		t.Error(out)
	}
	p.Findings = damagedPass(t).Findings[:1]
	if out := textOf(t, p, TextOptions{Width: 100}); !strings.HasPrefix(out, "Clean (exit 0, clean): nothing that 2 targets need is missing; 1 finding without effect") {
		t.Error(out)
	}
}

// What the table of targets and the totals count is what a finding says of itself.
func TestOnlyDamagePutsRowsAtRisk(t *testing.T) {
	t.Parallel()
	for v, want := range map[reconcile.Verdict]bool{reconcile.Missing: true, reconcile.Recoverable: true, reconcile.Pending: false, reconcile.Undecided: false, reconcile.Denied: false} {
		p := damagedPass(t)
		p.Findings = p.Findings[:1]
		p.Findings[0].Verdict, p.Findings[0].RowsAtRisk, p.Findings[0].Reason = v, ptr(int64(4321)), nil
		if out := textOf(t, p, TextOptions{}); strings.Contains(out, "4,321 rows at risk") != want {
			t.Errorf("%s:\n%s", v, out)
		}
	}
}

// A root has no path below itself: its URL stands in the path's place.
func TestAFindingOfARootHasALineOfItsOwn(t *testing.T) {
	t.Parallel()
	p := damagedPass(t)
	p.Findings = p.Findings[:1]
	p.Findings[0].Path, p.Findings[0].URL = "", "s3://closed/root"
	out := textOf(t, p, TextOptions{})
	if strings.Count(out, "\n    s3://closed/root\n") != 1 || strings.Contains(out, "\n\n      ") {
		t.Error(out)
	}
}
