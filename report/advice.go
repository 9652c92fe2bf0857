package report

import (
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// subject is what advice is asked about: a target as such, or findings of it that
// share verdict, reason and kind of role.
type subject struct {
	target, kind, uri string
	// version is the newest version in digits, empty when there is none to tell.
	version string
	state   reconcile.State
	// registry is the target's word; empty when no registry was read.
	registry string
	// stateReason is the target's; reason the findings' when finding is set, else the
	// target's too.
	stateReason, reason string
	// finding: verdict and the fields below are meaningful.
	finding  bool
	verdict  reconcile.Verdict
	role     reconcile.Role
	harmless bool
	// url of one of the objects, and what the store said of it ("HTTP 400
	// InvalidBucketName"); empty when it said nothing.
	url, answer string
	// until is the earliest recoverable_until, nil when the store does not tell.
	until *time.Time
	// retryAt is when the next attempt at the first of the objects is due, nil when not
	// known.
	retryAt *time.Time
	// everything: blocked by everything_missing.
	everything bool
	// others: of so many targets more the same is to be said.
	others int
	// since, in RFC 3339, nobody looked at an overdue target; empty when not known.
	since string
	// withoutRow: blocked by half_deleted, though the table is whole enough to be read.
	withoutRow bool
	// busy: a repair was put off since a writer had just committed; mode is the pass's.
	busy bool
	mode string
	// blocked: something blocks every action, so that a plan holds none.
	blocked bool
	// planned: a plan of this pass's mode holds a step; onlyFull: one of mode full would.
	planned, onlyFull bool
	// copies is what is known of copies, and peers are who said it.
	copies copies
	peers  []string
	// mended: a repair of this pass took care of it.
	mended bool
	// copyBack are commands that put an older version of the first objects back, where
	// one is known; byHand: no repair does.
	copyBack []string
	byHand   bool
}

// advice is the next step: a sentence, lines to be given to someone as they are,
// and the commands to run. Not every step is a command.
type advice struct {
	text     string
	verbatim []string
	commands []string
}

// adviser knows which commands can be suggested.
type adviser struct {
	command    Command
	canRepair  bool
	canRestore bool
}

// next is the advice for every state and verdict. It is empty only for a clean
// target without findings and for present references.
func (a adviser) next(s subject) advice {
	switch {
	case !s.finding:
		return a.forState(s)
	case s.verdict == reconcile.Present:
		return advice{}
	case s.mended && (s.state == reconcile.StateDiverged || s.state == reconcile.StateRefused || s.state == reconcile.StateIncomplete):
		return advice{text: "A repair of this pass took care of it (see Repairs): nothing is left to do."}
	case s.harmless:
		if s.reason == "pending_wal_entry" {
			return advice{text: "The log names this entry and no generation holds it yet: its rows may be lost, unless the writer still has them. Ask the writer's log; no repair can tell.", commands: a.check(s)}
		}
		return advice{text: "No read needs this object: it is reported only, nothing has to be done."}
	}
	switch s.state {
	case reconcile.StateRepaired:
		return a.forState(s)
	case reconcile.StateUnreadable, reconcile.StateHalfDeleted, reconcile.StateRolledBack, reconcile.StateLocked:
		// What is wrong with the target as such comes before any of its objects.
		s.finding, s.reason = false, s.stateReason
		return a.forState(s)
	case reconcile.StateClean:
		return a.forCleanTarget(s)
	case reconcile.StateIncomplete:
		// Bringing bytes back waits for nothing; only drops need a whole look.
		if s.verdict.Damaged() && s.verdict != reconcile.Recoverable && s.verdict != reconcile.Archived && s.copies == copiesUnknown && !neverDropped(s.role) {
			return advice{text: "Nothing of this target is repaired while part of it could not be judged: first make the look complete.",
				commands: a.check(s, a.command.later()...)}
		}
	}
	if a, ok := a.forFleet(s); ok {
		return a
	}
	if s.busy {
		return a.forBusy(s)
	}
	return a.forVerdict(s)
}

func (a adviser) check(s subject, extra ...string) []string {
	return []string{a.command.line("check", s, extra...)}
}

// forCleanTarget: findings that leave a target clean break nothing.
func (a adviser) forCleanTarget(s subject) advice {
	switch s.verdict {
	case reconcile.Pending:
		return advice{text: "Still on its way. Nothing has to be done unless it stays.", commands: a.check(s)}
	case reconcile.Superseded:
		return a.forVerdict(s)
	case reconcile.Missing, reconcile.Recoverable, reconcile.Lost, reconcile.SizeMismatch, reconcile.ChecksumMismatch,
		reconcile.Unreadable, reconcile.Archived:
		return advice{text: "The target is clean in spite of it: it is reported only, nothing has to be done."}
	}
	return a.forVerdict(s)
}

func (a adviser) forVerdict(s subject) advice {
	if (metadataRole(s.role) || s.byHand) && s.verdict.Damaged() && s.verdict != reconcile.Archived {
		return a.forMetadata(s)
	}
	if a, ok := a.forCopies(s); ok {
		return a
	}
	switch s.verdict {
	case reconcile.Missing:
		return a.forMissing(s)
	case reconcile.Recoverable:
		return a.forRecoverable(s)
	case reconcile.Lost:
		if s.role == reconcile.RoleDeletion {
			return a.forLostDeletion(s)
		}
		if neverDropped(s.role) {
			return a.forNeverDropped(s)
		}
		return a.propose(s, nobodyHasIt(s)+" A backup that is no configured peer may: copy it to the place above. ", "Otherwise see what a repair would drop.")
	case reconcile.SizeMismatch:
		return a.forSize(s)
	case reconcile.ChecksumMismatch:
		return a.propose(s, "Right size, other bytes. ", "See what a repair would bring back; the bytes that are there stay until a proven copy replaces them.")
	case reconcile.Unreadable:
		return a.propose(s, "It is there and not of its format. ", seeRepair)
	case reconcile.Archived:
		return advice{text: "Restore it from its archive tier with the means of the store, which takes minutes to hours, then check again.", commands: a.check(s)}
	case reconcile.Pending:
		if s.role == reconcile.RoleBlob {
			return advice{text: "Still on its way. Nothing has to be done unless it stays.", commands: a.check(s)}
		}
		return advice{text: "Too young to be judged: a writer may still be at it. Check again once it is older than --min-manifest-age (15m unless given).", commands: a.check(s)}
	case reconcile.Superseded:
		return advice{text: "The newest version does not name it any more: nothing has to be done. To see the table as it is now:", commands: a.check(s)}
	case reconcile.Denied:
		return a.forDenied(s)
	default:
		return a.forOpen(s)
	}
}

// metadataRole: objects that are never written by a repair.
func metadataRole(r reconcile.Role) bool {
	return r == reconcile.RoleManifest || r == reconcile.RoleWALManifest
}

func (a adviser) forMetadata(s subject) advice {
	text := "Metadata is never written by a repair. Keep writers away and bring the object back from a bucket version or a backup"
	if len(s.copyBack) > 0 {
		text = "Metadata is never written by a repair. Keep writers away and copy the older version back"
	}
	if s.until != nil {
		text += " before " + moment(*s.until)
	}
	text += ", then check again"
	if s.byHand {
		text += ": what it names is looked for, and brought back, from then on"
	}
	return advice{text: text + ".", verbatim: s.copyBack, commands: a.check(s)}
}

// forLostDeletion: without its deletion file a fragment would show rows again that
// someone deleted, so that only the whole fragment can go, and only when asked to.
func (a adviser) forLostDeletion(s subject) advice {
	lead := "Dropping the name of a deletion file would bring deleted rows back, so that it is only reported unless a copy turns up. "
	switch {
	case s.planned && a.command.Plan != "":
		return a.afterPlan(s, lead)
	case a.command.Plan != "":
		return advice{text: lead + "To give up the whole fragment:", commands: a.plan(s, "--deletion-files=drop_fragment")}
	case !a.canRepair:
		return advice{text: lead + seeRepair, commands: a.plan(s)}
	}
	return advice{text: lead + "See what a repair would do; the second command gives up the whole fragment.",
		commands: append(a.plan(s), a.plan(s, "--deletion-files=drop_fragment")...)}
}

func (a adviser) forMissing(s subject) advice {
	switch {
	case s.everything:
		return advice{text: "Everything is missing: then the place is likelier wrong than the data. Compare URI, endpoint, base paths and credentials with those of the writers; " +
			"nothing is dropped before.", commands: a.check(s, a.command.later()...)}
	case s.role == reconcile.RoleDeletion:
		return a.forLostDeletion(s)
	case s.role == reconcile.RoleIndex:
		return a.propose(s, "No row is lost with an index, searches that use it fail. ", seeRepair)
	case neverDropped(s.role):
		return a.forNeverDropped(s)
	}
	return a.propose(s, "", seeRepair)
}

func (a adviser) forRecoverable(s subject) advice {
	text := "A version or soft-deleted copy can be brought back. "
	if s.until != nil {
		text = "A copy can be brought back until " + moment(*s.until) + ", and not after. "
	}
	switch {
	case a.command.Plan != "":
		return a.afterPlan(s, text)
	case a.canRepair && a.canRestore && !s.blocked:
		return advice{text: text + "Restoring never loses a row:", commands: []string{a.command.line("repair", s, "--mode=restore")}}
	}
	return advice{text: text + "Keep lifecycle rules from removing it; the plan names what to restore from:", commands: a.plan(s)}
}

func (a adviser) forSize(s subject) advice {
	switch {
	case s.reason == reconcile.ReasonMetadataSizeWrong:
		return advice{text: "The object is whole: the recorded size is wrong. Nothing is repaired; engines that trust the size fail until the file is rewritten (compaction does). To see it again:",
			commands: a.check(s, "--depth=footer")}
	case s.reason == reconcile.ReasonNoContentLength:
		return a.forOpen(s)
	}
	return a.propose(s, "", seeRepair)
}

// forDenied names the rights to ask for. Without the right to list, S3 answers 403
// for a missing key as well, so that reading alone is not enough.
func (a adviser) forDenied(s subject) advice {
	if s.reason == reconcile.ReasonBadCredentials {
		return a.forNoTalk(s)
	}
	again := a.check(s)
	loc, err := objstore.Parse(s.uri)
	if url, urlErr := objstore.Parse(s.url); urlErr == nil {
		if _, below := url.Rel(loc); !below {
			loc, err = url.Parent(), nil // under another base path
		}
	}
	switch {
	case err == nil && loc.Scheme == "s3":
		return advice{text: "Ask for the two rights below (and kms:Decrypt where a key is used), then check again. Without s3:ListBucket a missing key answers 403 as well.",
			verbatim: []string{
				"s3:GetObject   arn:aws:s3:::" + printable(loc.Bucket+"/"+loc.Join("*").Key),
				"s3:ListBucket  arn:aws:s3:::" + printable(loc.Bucket),
			}, commands: again}
	case err == nil && loc.Scheme == "file":
		return advice{text: "Ask for the right to read the files and to search their folders, then check again.", commands: again}
	}
	return advice{text: "Ask for the right to read and list this place, then check again.", commands: again}
}

// forOpen is for what got no trustworthy answer.
func (a adviser) forOpen(s subject) advice {
	switch s.reason {
	case reconcile.ReasonThrottled:
		return advice{text: "The store asked to slow down. Check again with fewer requests at once:", commands: a.check(s, append(a.command.later(), a.command.fewer(16))...)}
	case reconcile.ReasonTimeout, reconcile.ReasonTargetTimeout:
		return advice{text: "The store gave no answer in time. Look at its health, then check this target alone:", commands: a.check(s, append(a.command.later(), a.command.fewer(32))...)}
	case reconcile.ReasonServerError:
		return advice{text: "The store failed on its own side" + s.said() + ". Look at its health, then check this target alone:", commands: a.check(s, append(a.command.later(), a.command.fewer(32))...)}
	case reconcile.ReasonUnreachable, reconcile.ReasonNoCredentials, reconcile.ReasonBadCredentials, reconcile.ReasonBadRequest, reconcile.ReasonNoAnswer:
		return a.forNoTalk(s)
	case reconcile.ReasonUnknownBase:
		return advice{text: "The manifest names a base that it does not define, so nobody can tell where the object lies. Ask who wrote the table (a clone or branch whose entry was lost?); older versions may tell:",
			commands: a.check(s, "--versions=all")}
	case reconcile.ReasonControlsFailed:
		return advice{text: "Objects that must be there were not found either, or an object that cannot be there was: no answer of this store counts. Compare endpoint, bucket and rights (list included), then check again.",
			commands: a.probeOr(s, a.check(s, a.command.later()...))}
	case reconcile.ReasonNoSuchBucket:
		return advice{text: "The bucket or root folder that is named does not exist. Compare name, endpoint and region with those of the writers, then check again.", commands: a.probeOr(s, a.check(s))}
	case reconcile.ReasonUnknownReaderFlags:
		return a.forUnknownFlags(s)
	case reconcile.ReasonBaseDenied, reconcile.ReasonAccessDenied:
		return a.forDenied(s)
	case reconcile.ReasonNoContentLength:
		return advice{text: "The store told no size. Look inside instead:", commands: a.check(s, "--depth=footer")}
	case reconcile.ReasonHigherVersionTrace:
		if s.role == reconcile.RoleWALManifest {
			return advice{text: "Something speaks of a newer manifest of a write-ahead shard than is there: it may have been deleted, and the rows that it names are hidden until it is back. Keep mergers away, look for older versions or copies of the folder, then check again:",
				commands: a.check(s)}
		}
		return advice{text: "Something names a version above the newest manifest: that manifest may have been deleted. Keep writers away and look at every manifest that is left:",
			commands: a.check(s, "--versions=all")}
	}
	if a, ok := a.forRegistry(s); ok {
		return a
	}
	if role, ok := strings.CutPrefix(s.reason, "not_checked:"); ok {
		return advice{text: "All that this version reads was looked at; the table also has files of role " + role + ", which it does not read (see Not looked at). Closer, of what it reads:",
			commands: a.check(s, "--depth=footer")}
	}
	return advice{text: "There was no trustworthy answer. Check again:", commands: a.check(s, a.command.later()...)}
}

// probeOr is the store's self-test where it exists, else other.
func (a adviser) probeOr(s subject, other []string) []string {
	if !a.canRepair || s.uri == "" {
		return other
	}
	return append([]string{a.command.words("probe", []string{s.uri})}, other...)
}
