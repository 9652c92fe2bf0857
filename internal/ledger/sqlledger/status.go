package sqlledger

import (
	"context"
	"fmt"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/reconcile"
)

// failedPostsShown is how long a post that nobody took is a matter of the present.
const failedPostsShown = 7 * 24 * time.Hour

// Status implements ledger.Reader.
func (l *Ledger) Status(ctx context.Context) (ledger.Status, error) {
	var s ledger.Status
	err := l.db.Read(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		s = ledger.Status{Now: now.UTC(), OpenByVerdict: map[reconcile.Verdict]int64{}, ActiveCooldowns: map[ledger.Kind]int64{}, Locked: []ledger.LockRow{}}
		_, err := one(ctx, c, `SELECT (SELECT count(*) FROM reconcile.targets),
			(SELECT count(*) FROM reconcile.repairs WHERE state IN ('intended', 'uncertain')),
			(SELECT count(*) FROM reconcile.task_failures WHERE handled_at IS NULL),
			(SELECT count(*) FROM reconcile.target_health WHERE damaged_objects > 0),
			(SELECT coalesce(CAST(sum(rows_at_risk) AS bigint), 0) FROM reconcile.target_health),
			(SELECT count(*) FROM reconcile.open_findings WHERE damaged),
			(SELECT count(*) FROM reconcile.open_findings WHERE acknowledged AND NOT harmless),
			(SELECT count(*) FROM reconcile.repair_posts WHERE state = 'open'),
			(SELECT count(*) FROM reconcile.repair_posts WHERE state IN ('refused', 'given_up') AND ended_at >= $1)`, []any{now.Add(-failedPostsShown)},
			&s.Targets, &s.Unsettled, &s.PendingFailures, &s.DamagedTargets, &s.RowsAtRisk, &s.DamagedObjects, &s.Acknowledged, &s.OpenPosts, &s.FailedPosts)
		if err != nil {
			return err
		}
		err = each(ctx, c, "SELECT verdict, count(*) FROM reconcile.open_findings WHERE NOT harmless GROUP BY verdict", nil, func(scan func(...any) error) error {
			var text string
			var n int64
			if err := scan(&text, &n); err != nil {
				return err
			}
			var v reconcile.Verdict
			err := word(text, &v)
			s.OpenByVerdict[v] = n
			return err
		})
		if err != nil {
			return err
		}
		err = each(ctx, c, "SELECT kind, count(*) FROM reconcile.active_cooldowns GROUP BY kind", nil, func(scan func(...any) error) error {
			var kind string
			var n int64
			err := scan(&kind, &n)
			s.ActiveCooldowns[ledger.Kind(kind)] = n
			return err
		})
		if err != nil {
			return err
		}
		if s.Locked, err = held(ctx, c); err != nil {
			return err
		}
		if s.LastPass, err = lastPass(ctx, c, "true"); err != nil {
			return err
		}
		s.LastClean, err = lastPass(ctx, c, wholeAndClean)
		return err
	})
	if err != nil {
		return ledger.Status{}, fmt.Errorf("read status: %w", err)
	}
	return s, nil
}

// wholeAndClean are the passes that found everything in order of all that they were
// configured to look at: one of a few targets, or of none, says nothing of the others.
// An empty list is {} in one dialect and [] in the other.
const wholeAndClean = "p.exit_code = 0 AND p.targets > 0 AND CAST(p.scope_targets_filter AS text) IN ('{}', '[]')"

func held(ctx context.Context, c Conn) ([]ledger.LockRow, error) {
	out := []ledger.LockRow{}
	err := each(ctx, c, "SELECT target_uri, owner, epoch, acquired_at, lease_until FROM reconcile.locks WHERE lease_until > (SELECT reconcile.now()) ORDER BY acquired_at, target_uri", nil, func(scan func(...any) error) error {
		var r ledger.LockRow
		err := scan(&r.TargetURI, &r.Owner, &r.Epoch, &r.AcquiredAt, &r.LeaseUntil)
		out = append(out, r)
		return err
	})
	return out, err
}

func lastPass(ctx context.Context, c Conn, cond string) (*ledger.PassRow, error) {
	ps, err := passes(ctx, c, cond+" ORDER BY p.started_at DESC, p.pass_id DESC LIMIT 1", nil, 1, nil)
	if err != nil || len(ps) == 0 {
		return nil, err
	}
	return &ps[0], nil
}

// Diff implements ledger.Reader.
func (l *Ledger) Diff(ctx context.Context, passA, passB string) (ledger.Diff, error) {
	var d ledger.Diff
	err := l.db.Read(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		ps, err := passes(ctx, c, "p.pass_id IN ($1, $2) ORDER BY p.started_at, p.pass_id", []any{text(passA), text(passB)}, 0, nil)
		if err != nil {
			return err
		}
		for _, id := range []string{passA, passB} {
			if !containsPass(ps, id) {
				return fmt.Errorf("%w: pass %s", ledger.ErrNotFound, id)
			}
		}
		d = ledger.Diff{From: ps[0], To: ps[len(ps)-1], New: []ledger.Finding{}, Persisting: []ledger.Finding{}, Resolved: []ledger.Finding{}, NotLookedAt: []ledger.Finding{}}
		return diff(ctx, c, now, &d)
	})
	if err != nil {
		return ledger.Diff{}, fmt.Errorf("compare passes: %w", err)
	}
	return d, nil
}

func containsPass(ps []ledger.PassRow, id string) bool {
	for _, p := range ps {
		if p.PassID == text(id) {
			return true
		}
	}
	return false
}

// diff sorts the findings that either pass saw. What became of one that only the first
// saw is told by what was last written of it up to the second.
func diff(ctx context.Context, c Conn, now time.Time, d *ledger.Diff) error {
	in := map[string]*[]ledger.Finding{}
	err := each(ctx, c, `WITH a AS (SELECT finding_id FROM reconcile.pass_findings WHERE pass_id = $1 AND event = 'seen'),
		b AS (SELECT finding_id, event FROM reconcile.pass_findings WHERE pass_id = $2),
		last AS (
			SELECT e.finding_id, max(e.recorded_at) AS at FROM reconcile.pass_findings e JOIN a ON a.finding_id = e.finding_id
			WHERE e.recorded_at <= (SELECT coalesce(max(x.at), min(p.started_at)) FROM reconcile.passes p
				LEFT JOIN (SELECT pass_id, max(recorded_at) AS at FROM reconcile.pass_targets GROUP BY pass_id) x ON x.pass_id = p.pass_id WHERE p.pass_id = $2)
			GROUP BY e.finding_id)
		SELECT a.finding_id, CASE WHEN b.event = 'seen' THEN 'persisting' WHEN b.event IS NOT NULL THEN 'resolved' WHEN EXISTS (
				SELECT 1 FROM reconcile.pass_findings e JOIN last ON last.finding_id = e.finding_id AND last.at = e.recorded_at
				WHERE e.finding_id = a.finding_id AND e.event <> 'seen') THEN 'resolved' ELSE 'not_looked_at' END
		FROM a LEFT JOIN b ON b.finding_id = a.finding_id
		UNION ALL
		SELECT b.finding_id, 'new' FROM b WHERE b.event = 'seen' AND b.finding_id NOT IN (SELECT finding_id FROM a)`,
		[]any{d.From.PassID, d.To.PassID}, func(scan func(...any) error) error {
			var id, list string
			if err := scan(&id, &list); err != nil {
				return err
			}
			switch list {
			case "new":
				in[id] = &d.New
			case "persisting":
				in[id] = &d.Persisting
			case "resolved":
				in[id] = &d.Resolved
			default:
				in[id] = &d.NotLookedAt
			}
			return nil
		})
	if err != nil {
		return err
	}
	fs, err := findings(ctx, c, now, `f.finding_id IN (SELECT finding_id FROM reconcile.pass_findings WHERE pass_id IN ($1, $2))
		ORDER BY f.store, f.target, f.role, f.path, f.finding_id`, []any{d.From.PassID, d.To.PassID}, 0, nil)
	for _, f := range fs {
		if list := in[f.Finding.FindingID]; list != nil {
			*list = append(*list, f)
		}
	}
	return err
}
