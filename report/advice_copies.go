package report

import (
	"net/url"
	"strings"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// absent: nothing is there.
func absent(v reconcile.Verdict) bool {
	return v == reconcile.Missing || v == reconcile.Recoverable || v == reconcile.Lost
}

// neverDropped: no repair of these ends in a commit, since none would mend anything.
func neverDropped(r reconcile.Role) bool {
	switch r {
	case reconcile.RoleBlob, reconcile.RoleBlobSidecar, reconcile.RoleWALGeneration, reconcile.RoleOverlay, reconcile.RoleRowIDs:
		return true
	}
	return false
}

// nobodyHasIt is the first sentence about a lost object.
func nobodyHasIt(s subject) string {
	if len(s.peers) == 0 {
		return "No version and no peer has it."
	}
	return "No version is left, and no peer has it: asked " + names(s.peers) + "."
}

// forNeverDropped is for objects that are missing or lost and can only come back.
func (a adviser) forNeverDropped(s subject) advice {
	what := ""
	switch s.role {
	case reconcile.RoleWALGeneration:
		what = "Rows of this generation are not in the base table yet, and no commit can mend that. "
	case reconcile.RoleBlobSidecar:
		what = "It holds values of rows that are there otherwise, and no commit can mend that. "
	case reconcile.RoleOverlay, reconcile.RoleRowIDs:
		what = "Its fragment cannot be read rightly without it, and no commit can mend that. "
	}
	if s.verdict == reconcile.Lost {
		text := what + nobodyHasIt(s) + " A backup that is no configured peer may: copy it to the place above and check again."
		if s.role == reconcile.RoleBlob {
			text += " A loss that is accepted (reconcile findings, reconcile ack) leaves the exit code."
		}
		return advice{text: text, commands: a.check(s)}
	}
	return advice{text: what + "Bring it back from a bucket version or a backup to the place above, or configure a peer that has it, then check again.", commands: a.check(s)}
}

// forCopies is the advice where it hangs on copies of the object; ok is false where
// none is known and everybody answered.
func (a adviser) forCopies(s subject) (_ advice, ok bool) {
	switch {
	case !s.verdict.Damaged() || s.verdict == reconcile.Archived:
		return advice{}, false
	case s.copies == copyAtPeer:
		return a.forCopyAtPeer(s), true
	case s.copies == copyWaits:
		return a.forWaiting(s), true
	case s.copies == peerSilent:
		text := "A peer gave no answer"
		if len(s.peers) > 0 {
			text = "Peer " + names(s.peers) + " gave no answer"
		}
		if neverDropped(s.role) {
			text += ": it may have a copy, so that this is not called lost."
		} else {
			text += ": nothing is dropped, since only an explicit no counts."
		}
		return advice{text: text + " Look at its health and your rights there, then check again.", commands: a.check(s, a.command.later()...)}, true
	case s.copies == copyUnproven && absent(s.verdict):
		text := "No copy is proven by what is recorded, and neither an older version nor one peer proves itself: only two peers that hold the same bytes bring it back. "
		if len(s.copyBack) == 0 {
			return advice{text: text + "Configure another peer that has it, or put it in the place above yourself, then check again.", commands: a.check(s)}, true
		}
		return advice{text: text + "Configure two that have it, or copy the older version back yourself when you know it for the right one, then check again.",
			verbatim: s.copyBack, commands: a.check(s)}, true
	case s.copies == copyUnproven:
		return advice{text: "Other bytes are there than recorded, and no copy proves to be the ones that were recorded: the record may be what is wrong. The bytes stay as they are. " +
			"Find out which of both is right, correct the record or put the right object there, then check again.", commands: a.check(s)}, true
	case s.copies == copyLosesBytes:
		text := "A copy could take its place, and the bytes that are there would be lost with that: the bucket keeps no versions and no quarantine is configured, or the object is too young. " +
			"Turn versions on or name a place with repair.quarantine; "
		if a.canRepair && a.canRestore {
			return advice{text: text + "then:", commands: []string{a.command.line("repair", s, "--mode=restore")}}, true
		}
		return advice{text: text + "then check again.", commands: a.check(s)}, true
	}
	return advice{}, false
}

// forWaiting: scheduled passes leave the object alone until its next attempt is due,
// which one by name does not wait for.
func (a adviser) forWaiting(s subject) advice {
	text := "An earlier try to bring it back failed (reconcile repairs says why), so that it is left alone for a while"
	if s.retryAt != nil {
		text = "An earlier try to bring it back failed (reconcile repairs says why); the next is due at " + moment(*s.retryAt)
	}
	if a.canRepair && a.canRestore {
		return advice{text: text + ". To try at once:", commands: []string{a.command.line("repair", s, "--mode=restore")}}
	}
	return advice{text: text + ". Check again after that.", commands: a.check(s)}
}

// forCopyAtPeer: a copy is proven before it is written, and replaces nothing that is
// not kept.
func (a adviser) forCopyAtPeer(s subject) advice {
	text := "A peer has a copy"
	if len(s.peers) > 0 {
		text += ": " + names(s.peers)
	}
	switch {
	case a.command.Plan != "":
		return a.afterPlan(s, text+", and it is proven before it is written. ")
	case a.canRepair && a.canRestore && !s.blocked:
		return advice{text: text + ". It is proven before it is written, and no row is lost:", commands: []string{a.command.line("repair", s, "--mode=restore")}}
	}
	return advice{text: text + ". The plan names what to fetch, and from where:", commands: a.plan(s)}
}

// copyBack are the commands that put an older version of the group's first objects back
// in their place.
func (g *group) copyBack() []string {
	var out []string
	for _, f := range g.findings[:min(len(g.findings), maxPerGroup)] {
		loc, err := objstore.Parse(f.URL)
		if err != nil || loc.Scheme != "s3" || f.RestorableVersion == "" {
			continue
		}
		from := strings.ReplaceAll((&url.URL{Path: loc.Bucket + "/" + loc.Key}).EscapedPath(), "+", "%2B") + "?versionId=" + url.QueryEscape(f.RestorableVersion)
		out = append(out, ShellLine("aws", "s3api", "copy-object", "--bucket", loc.Bucket, "--key", loc.Key, "--copy-source", from))
	}
	return out
}
