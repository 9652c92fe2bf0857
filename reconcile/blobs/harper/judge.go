package harper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Reasons of verdicts about blobs of nodes. They are public.
const (
	// ReasonNodeUnhealthy: the node failed its control; nothing is said of its blobs.
	ReasonNodeUnhealthy = "node_unhealthy"
	// ReasonNoControl: no blob of the node is known to be good yet.
	ReasonNoControl = "no_control"
	// ReasonNoResponse: the node answers for other blobs and not for this one, as old
	// builds do when the file is gone or has no whole header.
	ReasonNoResponse = "no_response"
	// ReasonIncomplete: fewer bytes than promised.
	ReasonIncomplete = "incomplete"
	// ReasonNodeReports: the node itself says that the blob is damaged (500).
	ReasonNodeReports = "node_reports_damage"
	// ReasonStub: a stub's header and text in place of the bytes.
	ReasonStub = "stub"
	// ReasonLengthChanged: the same version of the record had another length a moment ago.
	ReasonLengthChanged = "length_changed"
	// ReasonOutvoted: most nodes hold other bytes under the same version.
	ReasonOutvoted = "outvoted"
	// ReasonNodesDisagree: nodes hold different bytes under one version, and no majority.
	ReasonNodesDisagree = "nodes_disagree"
	// ReasonInFlight: on its way, says the node; ReasonDeadPending: for longer than Grace.
	ReasonInFlight    = "in_flight"
	ReasonDeadPending = "dead_pending"
	// ReasonCompressed: whole, in a form that this build cannot serve.
	ReasonCompressed = "compressed_unsupported"
	// ReasonSeenOnce: only the second look met the damage.
	ReasonSeenOnce = "seen_damaged_once"
	// ReasonVersionMoved: the record was written between the looks.
	ReasonVersionMoved = "version_moved"
	// ReasonNoBlob: the record holds no blob.
	ReasonNoBlob = "no_blob"
	// ReasonRecordUnreadable: the record that says what the blob must be cannot be read.
	ReasonRecordUnreadable = "record_unreadable"
)

// judging is one look at one object.
type judging struct {
	c      *Cluster
	op     string
	loc    objstore.Location
	u      unit
	second bool
}

func (j *judging) fail(status int, code string, err error) error {
	return &objstore.Error{Op: j.op, Location: j.loc, Status: status, Code: code, Err: err}
}

func (j *judging) verdict(v reconcile.Verdict, reason string, l look) error {
	err := l.err
	if l.outcome == incomplete || l.outcome == inFlight {
		promised := "an unknown number"
		if l.promised >= 0 {
			promised = fmt.Sprint(l.promised)
		}
		err = fmt.Errorf("%d of %s bytes: %w", l.got, promised, err)
	}
	return &reconcile.Judged{Verdict: v, Reason: reason, Err: j.fail(l.status, "", err)}
}

// undecided is what is said of a blob whose node's word counts for nothing.
func (j *judging) undecided(err error) error {
	reason := ReasonNodeUnhealthy
	if errors.Is(err, ErrNoControl) {
		reason = ReasonNoControl
	}
	return &reconcile.Judged{Verdict: reconcile.Undecided, Reason: reason, Err: err}
}

func (j *judging) judge(ctx context.Context) (objstore.Attrs, error) {
	n := j.u.node
	if err := n.open(ctx, j.c.cfg.LeaveAlone); err != nil {
		j.c.notes.ill(j.u)
		if ctx.Err() != nil {
			return objstore.Attrs{}, j.fail(0, "", context.Cause(ctx))
		}
		return objstore.Attrs{}, j.undecided(err)
	}
	if j.u.attr == "" {
		return j.judgeRecord(ctx)
	}
	l, state, err := j.look(ctx)
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return objstore.Attrs{}, j.fail(0, "", err)
	}
	if l.outcome == whole && state == agreed && j.sound(l) {
		j.c.notes.well(j.u)
		n.learn(j.u, l)
		return j.attrs(l), nil
	}
	return j.damaged(ctx, l, state)
}

// judgeRecord answers for a name that is a record's.
func (j *judging) judgeRecord(ctx context.Context) (objstore.Attrs, error) {
	since := j.u.node.since()
	rec, err := j.u.node.record(ctx, j.u, how{fresh: j.second})
	if err == nil && rec.found {
		return objstore.Attrs{Location: j.loc, Size: objstore.Unknown, ETag: rec.etag}, nil
	}
	if perr := j.u.node.prove(ctx, since, j.c.cfg.LeaveAlone); perr != nil {
		return objstore.Attrs{}, j.undecided(perr)
	}
	if err != nil {
		return objstore.Attrs{}, j.recordError(err)
	}
	return objstore.Attrs{}, j.fail(404, "NoSuchRecord", objstore.ErrNotExist)
}

func (j *judging) recordError(err error) error {
	var se *statusError
	if errors.As(err, &se) && se.denied() {
		return j.fail(se.status, "", objstore.ErrDenied)
	}
	return &reconcile.Judged{Verdict: reconcile.Undecided, Reason: ReasonRecordUnreadable, Err: err}
}

func (j *judging) attrs(l look) objstore.Attrs {
	return objstore.Attrs{Location: j.loc, Size: l.got, ETag: l.etag, Checksums: l.sums, ServerTime: l.date}
}

// algorithms of the digests that are made of a blob's bytes; the first is compared.
func (j *judging) algorithms() []string {
	if rec, _ := j.c.notes.expected(j.u); rec.Checksum != "" {
		alg, _, _ := strings.Cut(rec.Checksum, ":")
		return []string{alg}
	}
	return []string{j.u.set.Algorithm}
}

// look reads the blob; where no record has a digest of it and other nodes must hold the
// same bytes, theirs are read too.
func (j *judging) look(ctx context.Context) (look, accord, error) {
	algs := j.algorithms()
	rec, known := j.c.notes.expected(j.u)
	if rec.Checksum != "" || !known && j.u.set.Digest != "" || j.c.cfg.Relation != Replicated || len(j.c.order) < 2 {
		return j.u.node.lookAt(ctx, j.u, how{fresh: j.second}, algs), agreed, nil
	}
	r := j.c.groupd.of(j.u, j.second)
	var wg sync.WaitGroup
	others := make([]look, len(j.c.order))
	for i, n := range j.c.order {
		others[i].outcome = unclear
		if n == j.u.node {
			continue
		}
		wg.Go(func() {
			if n.open(ctx, j.c.cfg.LeaveAlone) != nil {
				return
			}
			other := j.u
			other.node = n
			if l, err := r.look(ctx, other, how{fresh: j.second}, algs, false); err == nil {
				others[i] = l
			}
		})
	}
	mine, err := r.look(ctx, j.u, how{fresh: j.second}, algs, true)
	wg.Wait()
	if err != nil || mine.outcome != whole {
		return mine, agreed, err
	}
	return mine, compare(mine, others, algs[0]), nil
}

// sound reports that whole bytes are what the record and the earlier looks say.
func (j *judging) sound(l look) bool {
	rec, known := j.c.notes.expected(j.u)
	switch {
	case known && rec.Size > 0 && l.got != rec.Size:
		return false
	case j.digestWrong(l):
		return false
	case known && (rec.Size > 0 || rec.Checksum != ""):
		return true
	case l.promised < 0: // without a length, only a record can say that this was all
		return false
	}
	return !j.shrunk(l)
}

func (j *judging) digestWrong(l look) bool {
	rec, _ := j.c.notes.expected(j.u)
	alg, _, _ := strings.Cut(rec.Checksum, ":")
	return rec.Checksum != "" && l.sums[alg] != "" && l.sums[alg] != rec.Checksum
}

// shrunk: a read of the same version promised another length before.
func (j *judging) shrunk(l look) bool {
	before := j.c.notes.met(j.u)
	return before.met > 0 && before.promised >= 0 && before.promised != l.got && before.etag == l.etag
}

// damaged says what a look that is not sound means, once the node has proven itself.
func (j *judging) damaged(ctx context.Context, l look, state accord) (objstore.Attrs, error) {
	j.c.notes.ill(j.u)
	switch l.outcome {
	case denied:
		return objstore.Attrs{}, j.fail(l.status, "", objstore.ErrDenied)
	case throttled:
		return objstore.Attrs{}, j.fail(l.status, "", objstore.ErrThrottled)
	}
	n := j.u.node
	if err := n.prove(ctx, l.since, j.c.cfg.LeaveAlone); err != nil {
		if ctx.Err() != nil {
			return objstore.Attrs{}, j.fail(0, "", context.Cause(ctx))
		}
		if errors.Is(err, ErrNoControl) && !j.second {
			// Met, and unproven only for want of a control: a second look that has one
			// may rest on it.
			j.c.notes.meet(j.u, l.etag, l.promised)
		}
		return objstore.Attrs{}, j.undecided(err)
	}
	switch l.outcome {
	case slow:
		return objstore.Attrs{}, j.verdict(reconcile.Undecided, reconcile.ReasonTimeout, l)
	case unclear:
		return objstore.Attrs{}, j.verdict(reconcile.Undecided, reconcile.ReasonNoAnswer, l)
	case deflated:
		return objstore.Attrs{}, j.verdict(reconcile.Undecided, ReasonCompressed, l)
	}
	rec, err := n.record(ctx, j.u, how{fresh: true})
	switch {
	case err != nil && ctx.Err() != nil:
		return objstore.Attrs{}, j.fail(0, "", context.Cause(ctx))
	case err != nil:
		return objstore.Attrs{}, j.recordError(err)
	case !rec.found:
		return objstore.Attrs{}, j.fail(404, "NoSuchRecord", objstore.ErrNotExist)
	case rec.row.isNull(j.u.attr):
		return objstore.Attrs{}, j.verdict(reconcile.Superseded, ReasonNoBlob, l)
	}
	etag := l.etag
	if etag == "" {
		etag = rec.etag
	}
	shrunk := j.shrunk(l)
	before := j.c.notes.meet(j.u, etag, l.promised)
	switch {
	case before.met == 0 && j.second:
		return objstore.Attrs{}, j.verdict(reconcile.Undecided, ReasonSeenOnce, l)
	case before.met > 0 && before.etag != "" && etag != "" && before.etag != etag:
		return objstore.Attrs{}, j.verdict(reconcile.Superseded, ReasonVersionMoved, l)
	}
	return j.sentence(ctx, l, state, shrunk)
}

// sentence maps damage to a verdict.
func (j *judging) sentence(ctx context.Context, l look, state accord, shrunk bool) (objstore.Attrs, error) {
	say := func(v reconcile.Verdict, reason string) (objstore.Attrs, error) {
		return objstore.Attrs{}, j.verdict(v, reason, l)
	}
	switch l.outcome {
	case absent:
		return objstore.Attrs{}, j.fail(l.status, "NoSuchBlob", objstore.ErrNotExist)
	case silent:
		return say(reconcile.Unreadable, ReasonNoResponse)
	case incomplete:
		return say(reconcile.Unreadable, ReasonIncomplete)
	case failed:
		return say(reconcile.Unreadable, ReasonNodeReports)
	case stub:
		return say(reconcile.Unreadable, ReasonStub)
	case inFlight:
		return j.pending(ctx, l)
	}
	rec, known := j.c.notes.expected(j.u)
	switch {
	case known && rec.Size > 0 && l.got != rec.Size, j.digestWrong(l):
		return j.attrs(l), nil // whoever knows the recorded size and digest sees it
	case state == outvoted:
		return say(reconcile.ChecksumMismatch, ReasonOutvoted)
	case state == disagreed:
		return say(reconcile.Undecided, ReasonNodesDisagree)
	case shrunk:
		return say(reconcile.Unreadable, ReasonLengthChanged)
	}
	return j.pending(ctx, l)
}

// pending becomes damage by age alone: nothing that a node says tells a transfer that
// goes on from one that nobody carries on.
func (j *judging) pending(ctx context.Context, l look) (objstore.Attrs, error) {
	if j.c.cfg.Sighted != nil {
		age, err := j.c.cfg.Sighted(ctx, j.loc)
		if err != nil {
			return objstore.Attrs{}, j.fail(0, "", fmt.Errorf("ask since when it is on its way: %w", err))
		}
		if age >= j.c.cfg.Grace {
			return objstore.Attrs{}, j.verdict(reconcile.Unreadable, ReasonDeadPending, l)
		}
	}
	return objstore.Attrs{}, j.verdict(reconcile.Pending, ReasonInFlight, l)
}
