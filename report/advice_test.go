package report

import (
	"bytes"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/reconcile"
)

func testSubject(state reconcile.State) subject {
	return subject{target: "generic:x", kind: "generic", uri: "s3://bucket/x.generic.lance", version: "7", state: state, role: reconcile.RoleData, url: "s3://bucket/x.generic.lance/data/a.lance"}
}

// checkAdvice holds one piece of advice to the rules that all keep.
func checkAdvice(t *testing.T, what string, a advice, canRepair bool) {
	t.Helper()
	if a.text == "" {
		t.Errorf("%s: no advice", what)
	}
	if strings.HasSuffix(a.text, ":") && len(a.commands) == 0 {
		t.Errorf("%s: announces a command and has none: %s", what, a.text)
	}
	allowed := []string{"check", "plan", "explain"}
	if canRepair {
		allowed = append(allowed, "apply", "repair", "probe")
	}
	for _, c := range a.commands {
		words := strings.Fields(c)
		if words[0] != "reconcile" || !slices.Contains(allowed, words[1]) {
			t.Errorf("%s: suggests %q", what, c)
		}
	}
}

// Every state and every verdict in every state has advice, and what it is can be
// read in one file.
func TestEveryStateAndVerdictHasAdvice(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	for _, canRepair := range []bool{false, true} {
		a := adviser{canRepair: canRepair, canRestore: canRepair}
		fmt.Fprintf(&b, "==== commands that write exist: %v\n", canRepair)
		for _, state := range reconcile.States() {
			s := testSubject(state)
			if got := a.next(s); state == reconcile.StateClean {
				if got.text != "" {
					t.Errorf("a clean target without findings has advice: %q", got.text)
				}
			} else {
				checkAdvice(t, state.String(), got, canRepair)
				writeAdvice(&b, state.String(), got)
			}
			for _, v := range reconcile.Verdicts() {
				s.finding, s.verdict = true, v
				got := a.next(s)
				if v == reconcile.Present {
					if got.text != "" {
						t.Errorf("a present reference has advice: %q", got.text)
					}
					continue
				}
				what := state.String() + " / " + v.String()
				checkAdvice(t, what, got, canRepair)
				writeAdvice(&b, what, got)
				// Nor may any role or mark leave a gap.
				for _, role := range reconcile.Roles() {
					for _, mark := range []func(*subject){func(*subject) {}, func(s *subject) { s.harmless = true }, func(s *subject) { s.everything = true }} {
						r := s
						r.role = role
						mark(&r)
						checkAdvice(t, what+" / "+role.String(), a.next(r), canRepair)
					}
				}
			}
		}
	}
	golden(t, "testdata/advice.golden", b.Bytes())
}

func writeAdvice(b *bytes.Buffer, what string, a advice) {
	fmt.Fprintf(b, "%s\n\t%s\n", what, a.text)
	for _, l := range slices.Concat(a.verbatim, a.commands) {
		fmt.Fprintf(b, "\t\t%s\n", l)
	}
}

// An object of a target that is wrong as such gets the target's step, with the
// target's reason and not the object's.
func TestTheTargetsOwnTroubleComesFirst(t *testing.T) {
	t.Parallel()
	s := testSubject(reconcile.StateUnreadable)
	s.stateReason, s.reason = reconcile.ReasonUnknownReaderFlags, reconcile.ReasonUnknownReaderFlags
	want := adviser{}.next(s)
	s.finding, s.verdict, s.reason = true, reconcile.Missing, "something else"
	if got := (adviser{}).next(s); !equalAdvice(got, want) {
		t.Errorf("got %q, want %q", got.text, want.text)
	}
}

// Reasons and roles that change the step, one line each.
func TestAdviceLooksAtReasonAndRole(t *testing.T) {
	t.Parallel()
	until := start.Add(72 * time.Hour)
	var b bytes.Buffer
	for _, c := range []struct {
		name string
		s    func(s *subject)
	}{
		{"unreadable by unknown reader flags", func(s *subject) {
			s.state, s.reason = reconcile.StateUnreadable, reconcile.ReasonUnknownReaderFlags
		}},
		{"unreadable by mixed naming", func(s *subject) { s.state, s.reason = reconcile.StateUnreadable, reconcile.ReasonMixedNaming }},
		{"failed, no such bucket", func(s *subject) { s.state, s.reason = reconcile.StateFailed, reconcile.ReasonNoSuchBucket }},
		{"undecided, a version with unknown flags", func(s *subject) { s.finding, s.reason = true, reconcile.ReasonUnknownReaderFlags }},
		{"diverged, no store", func(s *subject) { s.reason, s.registry = "no_store", "no_store" }},
		{"diverged, unregistered", func(s *subject) { s.registry = "unregistered" }},
		{"diverged, uri differs", func(s *subject) { s.registry = "uri_differs" }},
		{"clean, unregistered", func(s *subject) { s.state, s.registry = reconcile.StateClean, "unregistered" }},
		{"a root without registries", func(s *subject) { s.state, s.reason = reconcile.StateIncomplete, reconcile.ReasonNoRegistry }},
		{"a registry that cannot be read", func(s *subject) { s.state, s.reason = reconcile.StateIncomplete, reconcile.ReasonBadRegistry }},
		{"names that no store can have", func(s *subject) { s.state, s.reason = reconcile.StateIncomplete, reconcile.ReasonInvalidNames }},
		{"a row that may be over nothing", func(s *subject) { s.state, s.reason = reconcile.StateIncomplete, reconcile.ReasonRegistryUnread }},
		{"diverged, everything missing", func(s *subject) { s.reason = reconcile.ReasonEverythingMissing }},
		{"a manifest is missing", func(s *subject) {
			s.finding, s.verdict, s.role = true, reconcile.Missing, reconcile.RoleManifest
		}},
		{"a file of a pending generation is missing", func(s *subject) {
			s.finding, s.verdict, s.role = true, reconcile.Missing, reconcile.RoleWALGeneration
		}},
		{"a blob is missing", func(s *subject) { s.finding, s.verdict, s.role = true, reconcile.Missing, reconcile.RoleBlob }},
		{"a blob is missing in a collection that was not judged whole", func(s *subject) {
			s.state, s.finding, s.verdict, s.role = reconcile.StateIncomplete, true, reconcile.Missing, reconcile.RoleBlob
		}},
		{"a blob is lost, and peers said so", func(s *subject) {
			s.finding, s.verdict, s.role, s.peers = true, reconcile.Lost, reconcile.RoleBlob, []string{peerA, peerB}
		}},
		{"a file of a pending generation is lost", func(s *subject) {
			s.finding, s.verdict, s.role, s.peers = true, reconcile.Lost, reconcile.RoleWALGeneration, []string{peerA}
		}},
		{"a blob sidecar is missing", func(s *subject) {
			s.finding, s.verdict, s.role = true, reconcile.Missing, reconcile.RoleBlobSidecar
		}},
		{"a blob sidecar is lost", func(s *subject) {
			s.finding, s.verdict, s.role = true, reconcile.Lost, reconcile.RoleBlobSidecar
		}},
		{"a row id file is missing", func(s *subject) { s.finding, s.verdict, s.role = true, reconcile.Missing, reconcile.RoleRowIDs }},
		{"a data file is lost, and peers said so", func(s *subject) { s.finding, s.verdict, s.peers = true, reconcile.Lost, []string{peerA} }},
		{"a peer has a copy", func(s *subject) {
			s.finding, s.verdict, s.copies, s.peers = true, reconcile.Missing, copyAtPeer, []string{peerA}
		}},
		{"a peer is silent", func(s *subject) {
			s.finding, s.verdict, s.copies, s.peers = true, reconcile.Missing, peerSilent, []string{peerA}
		}},
		{"a peer is silent about a blob", func(s *subject) {
			s.finding, s.verdict, s.role, s.copies, s.peers = true, reconcile.Missing, reconcile.RoleBlob, peerSilent, []string{peerA}
		}},
		{"no copy is proven", func(s *subject) {
			s.finding, s.verdict, s.copies = true, reconcile.ChecksumMismatch, copyUnproven
		}},
		{"a copy would lose bytes", func(s *subject) {
			s.finding, s.verdict, s.copies = true, reconcile.Unreadable, copyLosesBytes
		}},
		{"no copy of what is absent is proven", func(s *subject) {
			s.finding, s.verdict, s.role, s.copies = true, reconcile.Missing, reconcile.RoleBlobSidecar, copyUnproven
		}},
		{"an older version alone proves nothing", func(s *subject) {
			s.finding, s.verdict, s.role, s.copies, s.copyBack = true, reconcile.Recoverable, reconcile.RoleBlobSidecar, copyUnproven, []string{"aws s3api copy-object …"}
		}},
		{"an older version of a generation's manifest", func(s *subject) {
			s.finding, s.verdict, s.role, s.byHand, s.copyBack = true, reconcile.Recoverable, reconcile.RoleWALGeneration, true, []string{"aws s3api copy-object …"}
		}},
		{"an earlier try failed", func(s *subject) {
			s.finding, s.verdict, s.copies, s.retryAt, s.blocked = true, reconcile.Recoverable, copyWaits, &until, true
		}},
		{"a blob is lost", func(s *subject) { s.finding, s.verdict, s.role = true, reconcile.Lost, reconcile.RoleBlob }},
		{"recoverable until", func(s *subject) { s.finding, s.verdict, s.until = true, reconcile.Recoverable, &until }},
		{"a deletion file is missing", func(s *subject) { s.finding, s.verdict, s.role = true, reconcile.Missing, reconcile.RoleDeletion }},
		{"an index file is missing", func(s *subject) { s.finding, s.verdict, s.role = true, reconcile.Missing, reconcile.RoleIndex }},
		{"a manifest is recoverable until", func(s *subject) {
			s.finding, s.verdict, s.role, s.until = true, reconcile.Recoverable, reconcile.RoleManifest, &until
		}},
		{"the recorded size is wrong", func(s *subject) {
			s.finding, s.verdict, s.reason = true, reconcile.SizeMismatch, reconcile.ReasonMetadataSizeWrong
		}},
		{"denied on files", func(s *subject) {
			s.finding, s.verdict, s.uri, s.url = true, reconcile.Denied, "file:///srv/x.lance", "file:///srv/x.lance/data/a.lance"
		}},
		{"denied under another base", func(s *subject) {
			s.finding, s.verdict, s.url = true, reconcile.Denied, "s3://other/y.lance/data/a.lance"
		}},
		{"undecided, throttled", func(s *subject) { s.finding, s.reason = true, reconcile.ReasonThrottled }},
		{"undecided, time-out", func(s *subject) { s.finding, s.reason = true, reconcile.ReasonTimeout }},
		{"undecided, the store's own error", func(s *subject) { s.finding, s.reason, s.answer = true, reconcile.ReasonServerError, "HTTP 500" }},
		{"undecided, nobody listens", func(s *subject) { s.finding, s.reason = true, reconcile.ReasonUnreachable }},
		{"undecided, nobody to sign as", func(s *subject) { s.finding, s.reason = true, reconcile.ReasonNoCredentials }},
		{"undecided, a name that no bucket can have", func(s *subject) {
			s.finding, s.reason, s.answer = true, reconcile.ReasonBadRequest, "HTTP 400 InvalidBucketName"
		}},
		{"undecided, an expired session", func(s *subject) {
			s.finding, s.reason, s.answer = true, reconcile.ReasonBadCredentials, "HTTP 400 ExpiredToken"
		}},
		{"denied, a wrong key", func(s *subject) {
			s.finding, s.verdict, s.reason, s.answer = true, reconcile.Denied, reconcile.ReasonBadCredentials, "HTTP 403 SignatureDoesNotMatch"
		}},
		{"undecided, no answer", func(s *subject) { s.finding, s.reason = true, reconcile.ReasonNoAnswer }},
		{"undecided, no answer on files", func(s *subject) {
			s.finding, s.reason, s.uri, s.url = true, reconcile.ReasonNoAnswer, "file:///srv/x.lance", "file:///srv/x.lance/data/a.lance"
		}},
		{"incomplete target, nobody to sign as", func(s *subject) { s.state, s.reason = reconcile.StateIncomplete, reconcile.ReasonNoCredentials }},
		{"incomplete target, wrong keys", func(s *subject) { s.state, s.reason = reconcile.StateIncomplete, reconcile.ReasonBadCredentials }},
		{"undecided, unknown base", func(s *subject) { s.finding, s.reason = true, reconcile.ReasonUnknownBase }},
		{"undecided, controls failed", func(s *subject) { s.finding, s.reason = true, reconcile.ReasonControlsFailed }},
		{"undecided, no such bucket", func(s *subject) { s.finding, s.reason = true, reconcile.ReasonNoSuchBucket }},
		{"undecided, no content length", func(s *subject) { s.finding, s.reason = true, reconcile.ReasonNoContentLength }},
		{"undecided, trace of a higher version", func(s *subject) { s.finding, s.reason = true, reconcile.ReasonHigherVersionTrace }},
		{"incomplete target, access denied", func(s *subject) { s.state, s.reason = reconcile.StateIncomplete, reconcile.ReasonAccessDenied }},
	} {
		s := testSubject(reconcile.StateDiverged)
		c.s(&s)
		got := adviser{canRepair: false}.next(s)
		checkAdvice(t, c.name, got, false)
		if plain := (adviser{}).next(testSubject(s.state)); equalAdvice(plain, got) {
			t.Errorf("%s: the same advice as without it", c.name)
		}
		writeAdvice(&b, c.name, got)
	}
	golden(t, "testdata/advice_reasons.golden", b.Bytes())
}

func TestSuggestedCommandsLookAtTheSameThing(t *testing.T) {
	t.Parallel()
	c := Command{Program: "./bin/reconcile", URIs: []string{"s3://bucket/", "/srv/my tables"},
		Flags: []string{"--config=prod.yaml", "--output=json", "--target=*", "--versions=all", "--confirm-after=5s", "--report=s3://ops"}}
	c2 := Command{Flags: []string{"--confirm-after=1d", "--concurrency=10"}}
	c3 := Command{Flags: []string{"--config=c", "--versions=all", "--depth=footer", "--confirm-after=2s", "--min-manifest-age=0s"}, RepairFlags: []string{"--max-fragments=3", "--deletion-files=drop_fragment"}}
	table := subject{target: "table:x", kind: "table", uri: "s3://bucket/x.lance"}
	off := table
	off.registry = reconcile.RegistryUnregistered
	blobs := subject{target: "blobs:a[1]", kind: "blobs", uri: "s3://attachments/"}
	for _, tc := range []struct{ name, got, want string }{
		{"a table is named by its URI; flags of the form are left out", c.line("check", table), "./bin/reconcile check s3://bucket/x.lance --config=prod.yaml --versions=all --confirm-after=5s"},
		{"a suggested flag wins over the given one", c.line("check", table, "--confirm-after=5m"), "./bin/reconcile check s3://bucket/x.lance --config=prod.yaml --versions=all --confirm-after=5m"},
		{"a collection is named by a pattern that matches it alone", c.line("check", blobs), `./bin/reconcile check s3://bucket/ '/srv/my tables' '--target=blobs:a\[1]' --config=prod.yaml --versions=all --confirm-after=5s`},
		{"a repair takes the name of a collection and nothing else", c.line("repair", blobs, "--mode=restore"), `./bin/reconcile repair 'blobs:a[1]' --config=prod.yaml --versions=all --confirm-after=5s --mode=restore`},
		{"a longer wait of the user is kept", c2.line("check", table, c2.later()...), "reconcile check s3://bucket/x.lance --confirm-after=1d --concurrency=10"},
		{"fewer requests are fewer than the user's", c2.line("check", table, c2.fewer(16)), "reconcile check s3://bucket/x.lance --confirm-after=1d --concurrency=5"},
		{"fewer requests than many", Command{Flags: []string{"--concurrency=256"}}.line("check", table, Command{Flags: []string{"--concurrency=256"}}.fewer(16)), "reconcile check s3://bucket/x.lance --concurrency=16"},
		{"a repair names a table by its URI, whatever its registry says", c.line("repair", off), "./bin/reconcile repair s3://bucket/x.lance --config=prod.yaml --versions=all --confirm-after=5s"},
		{"a plan is carried out by looks as far apart as those it was made from, and within its limits", c3.words("apply", []string{"p q.json"}), "reconcile apply 'p q.json' --config=c --confirm-after=2s --min-manifest-age=0s --max-fragments=3"},
		{"a plan gets the flags of both", c3.line("plan", table), "reconcile plan s3://bucket/x.lance --config=c --versions=all --depth=footer --confirm-after=2s --min-manifest-age=0s --max-fragments=3 --deletion-files=drop_fragment"},
		{"a check knows no flag of a repair", c3.line("check", table), "reconcile check s3://bucket/x.lance --config=c --versions=all --depth=footer --confirm-after=2s --min-manifest-age=0s"},
		{"a probe asks the same store and looks at nothing", c3.words("probe", []string{"s3://bucket"}), "reconcile probe s3://bucket --config=c"},
		{"looks that are nearer than a repair takes are put apart", Command{Flags: []string{"--confirm-after=0s"}}.line("plan", table), "reconcile plan s3://bucket/x.lance --confirm-after=1s"},
		{"a look of that kind is not", Command{Flags: []string{"--confirm-after=0s"}}.line("check", table), "reconcile check s3://bucket/x.lance --confirm-after=0s"},
		{"without anything given", Command{}.line("plan", table), "reconcile plan s3://bucket/x.lance"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, tc.got, tc.want)
		}
	}
}

// After a plan was written the next step is that plan, where it holds one for the finding;
// else it says why it holds none.
func TestAPlanThatWasWrittenIsTheNextStep(t *testing.T) {
	t.Parallel()
	a := adviser{command: Command{Plan: "plan2.json", Flags: []string{"--confirm-after=1s"}}, canRepair: true, canRestore: true}
	apply := []string{"reconcile apply plan2.json --confirm-after=1s"}
	again := []string{"reconcile plan s3://bucket/x.generic.lance --confirm-after=1s -o plan2-again.json"}
	finding := func(action reconcile.Action, blocked ...string) *reconcile.Finding {
		return &reconcile.Finding{ProposedAction: action, BlockedBy: blocked, URL: "s3://bucket/x.generic.lance/data/a.lance", Role: reconcile.RoleData, Verdict: reconcile.Missing}
	}
	for _, c := range []struct {
		name string
		mode string
		s    func(*subject)
		f    *reconcile.Finding
		want []string
		says string
	}{
		{"a drop", "full", nil, finding(reconcile.ActionDropFragment), apply, "holds the step"},
		{"a drop that the mode leaves out", "restore", nil, finding(reconcile.ActionDropFragment), []string{"reconcile plan s3://bucket/x.generic.lance --confirm-after=1s --mode=full -o plan2-again.json"}, "only --mode=full"},
		{"a drop that a writer is too near for", "full", nil, finding(reconcile.ActionDropFragment, reconcile.BlockedBusy), []string{"reconcile run --target=generic:x --confirm-after=1s --mode=full"}, "repair.quiet"},
		{"a drop that is blocked", "full", nil, finding(reconcile.ActionDropFragment, reconcile.BlockedOverLimit), again, "what blocks it"},
		{"nothing that a repair could do", "full", nil, finding(reconcile.ActionNone), again, "no step"},
		{"a copy at a peer", "restore", nil, finding(reconcile.ActionRefetch), apply, "A peer has a copy"},
		{"an older version", "restore", func(s *subject) { s.verdict = reconcile.Recoverable }, finding(reconcile.ActionRestore), apply, "holds the step"},
	} {
		g := &group{key: keyOf(c.f), findings: []*reconcile.Finding{c.f}}
		s := g.subject(testSubject(reconcile.StateDiverged), c.mode)
		if c.s != nil {
			c.s(&s)
		}
		got := a.next(s)
		if !slices.Equal(got.commands, c.want) || !strings.Contains(got.text, c.says) {
			t.Errorf("%s: %s\n got %q\nwant %q", c.name, got.text, got.commands, c.want)
		}
	}
}

// A shell that reads the printed line must see the words that were meant.
func TestCommandsCanBePasted(t *testing.T) {
	t.Parallel()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	words := []string{"plain-1.2/x:y=z", "", "two words", "it's", `"`, "$HOME", "`id`", "$(id)", `back\slash`, "a;b", "*", "~", "!x", "#", "ümlaut", "new\nline", "tab\t'q'", "esc\x1b[31m", "\xff\xfe1", "\u202ertl", "{a,b}", "--flag=a b"}
	line := ShellLine(append([]string{"printf", `%s\0`}, words...)...)
	for _, r := range line {
		if r < 0x20 || r == '\u202e' || r == '\uFFFD' {
			t.Errorf("%U stands in the line %q", r, line)
		}
	}
	out, err := exec.CommandContext(t.Context(), bash, "--norc", "-c", line).Output()
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if d := cmp.Diff(words, got); d != "" {
		t.Errorf("%s\n-meant +seen:\n%s", line, d)
	}
}
