package sqlledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rocketkeep/reconcile/internal/ledger"
)

// landed are repairs that took effect for certain: looked at again and right, or
// found in the table by a later holder of the lock.
const landed = "r.state = 'applied' AND (r.verified_at IS NOT NULL OR r.settled_epoch <> r.epoch)"

// OpenPosts implements ledger.Posts.
func (l *Ledger) OpenPosts(ctx context.Context, hooks []ledger.PostHook, uris []string, age time.Duration) (int64, error) {
	var opened int64
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error {
		opened = 0
		// Chosen before the first row is written: a row is what says that a repair was
		// thought of.
		var ids []string
		err := each(ctx, c, "SELECT r.repair_id FROM "+l.db.Each("$1")+" JOIN reconcile.repairs r ON r.target_uri = e.value WHERE "+landed+
			" AND r.settled_at >= $2 AND NOT EXISTS (SELECT 1 FROM reconcile.repair_posts p WHERE p.repair_id = r.repair_id) ORDER BY r.repair_id",
			[]any{list(uris), now.Add(-age)}, func(scan func(...any) error) error {
				var id string
				err := scan(&id)
				ids = append(ids, id)
				return err
			})
		if err != nil {
			return err
		}
		for _, id := range ids {
			for _, h := range hooks {
				sql, args := insert("reconcile.repair_posts", []col{
					{"repair_id", id}, {"hook", text(h.Key)}, {"url", text(h.URL)}, {"state", ledger.PostOpen},
					{"passes", int64(0)}, {"attempts", int64(0)}, {"created_at", now},
				}, "ON CONFLICT (repair_id, hook) DO NOTHING")
				n, err := c.Exec(ctx, sql, args...)
				if err != nil {
					return err
				}
				opened += n
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("open posts: %w", err)
	}
	return opened, nil
}

// DuePosts implements ledger.Posts.
func (l *Ledger) DuePosts(ctx context.Context, hooks []ledger.PostHook, uris []string, age time.Duration, passes int64) (due, givenUp []ledger.Post, err error) {
	keys := make([]string, len(hooks))
	for i, h := range hooks {
		keys[i] = text(h.Key)
	}
	err = l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) (err error) {
		// One that was never sent gets its try, unless nobody is left to send it.
		hopeless := "p.state = 'open' AND (p.created_at < $1 AND (p.passes > 0 OR p.hook NOT IN (SELECT e.value FROM " + l.db.Each("$4") +
			")) OR p.created_at < $5 OR p.passes >= $2) AND (p.claimed_until IS NULL OR p.claimed_until <= $3)"
		if givenUp, err = l.posts(ctx, c, hopeless, now.Add(-age), passes, now, keys, now.Add(-unsentAges*age)); err != nil {
			return err
		}
		for i := range givenUp {
			p := &givenUp[i]
			if p.Error == nil {
				p.Error = filled("no pass came to send it in time")
			}
			p.State = ledger.PostGivenUp
			sql, args := update("reconcile.repair_posts", []col{{"state", p.State}, {"error", p.Error}, {"ended_at", now}, {"claimed_until", (*time.Time)(nil)}},
				"repair_id = $1 AND hook = $2", p.Repair.RepairID, p.Hook)
			if _, err := c.Exec(ctx, sql, args...); err != nil {
				return err
			}
		}
		due, err = l.posts(ctx, c, "p.state = 'open' AND (p.claimed_until IS NULL OR p.claimed_until <= $1) AND p.hook IN (SELECT e.value FROM "+l.db.Each("$2")+
			") AND r.target_uri IN (SELECT e.value FROM "+l.db.Each("$3")+")", now, keys, list(uris))
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read posts: %w", err)
	}
	return due, givenUp, nil
}

// unsentAges is for how many times its age a post is kept that no pass came to send.
const unsentAges = 7

// posts reads posts with their repairs, those first that fewest passes tried, of these
// the oldest; where follows "WHERE".
func (l *Ledger) posts(ctx context.Context, c Conn, where string, args ...any) ([]ledger.Post, error) {
	out := []ledger.Post{}
	ids := []string{}
	err := each(ctx, c, `SELECT p.repair_id, p.hook, p.url, p.state, p.passes, p.attempts, p.status, p.error, p.created_at, p.last_attempt_at
		FROM reconcile.repair_posts p JOIN reconcile.repairs r ON r.repair_id = p.repair_id WHERE `+where+" ORDER BY p.passes, p.created_at, p.repair_id, p.hook", args, func(scan func(...any) error) error {
		var p ledger.Post
		err := scan(&p.Repair.RepairID, &p.Hook, &p.URL, &p.State, &p.Passes, &p.Attempts, &p.Status, &p.Error, &p.CreatedAt, &p.LastAttemptAt)
		out, ids = append(out, p), append(ids, p.Repair.RepairID)
		return err
	})
	if err != nil || len(out) == 0 {
		return out, err
	}
	rs, err := l.repairs(ctx, c, "r.repair_id IN (SELECT e.value FROM "+l.db.Each("$1")+")", []any{ids}, 0, nil)
	if err != nil {
		return nil, err
	}
	at := map[string]ledger.Repair{}
	for _, r := range rs {
		at[r.RepairID] = r
	}
	for i := range out {
		out[i].Repair = at[out[i].Repair.RepairID]
	}
	return out, nil
}

// ClaimPost implements ledger.Posts.
func (l *Ledger) ClaimPost(ctx context.Context, repairID, hook string, length time.Duration) (bool, error) {
	var n int64
	err := l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) (err error) {
		n, err = c.Exec(ctx, `UPDATE reconcile.repair_posts SET claimed_until = $3, last_attempt_at = $4, passes = passes + 1
			WHERE repair_id = $1 AND hook = $2 AND state = 'open' AND (claimed_until IS NULL OR claimed_until <= $4)`,
			text(repairID), text(hook), now.Add(length), now)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("claim post of repair %s: %w", repairID, err)
	}
	return n > 0, nil
}

// SettlePost implements ledger.Posts.
func (l *Ledger) SettlePost(ctx context.Context, repairID, hook string, r ledger.PostResult) error {
	err := checkPost(r)
	if err == nil {
		err = l.db.Write(ctx, func(ctx context.Context, c Conn, now time.Time) error {
			var ended *time.Time
			if r.State != ledger.PostOpen {
				ended = &now
			}
			n, err := c.Exec(ctx, `UPDATE reconcile.repair_posts SET state = $3, attempts = attempts + $4, status = $5, error = $6, url = coalesce($7, url),
				last_attempt_at = $8, ended_at = $9, claimed_until = NULL WHERE repair_id = $1 AND hook = $2 AND state = 'open'`,
				text(repairID), text(hook), r.State, r.Attempts, r.Status, postError(r.Error), filled(r.URL), now, ended)
			if err == nil && n == 0 {
				return ledger.ErrNotFound
			}
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("settle post of repair %s: %w", repairID, err)
	}
	return nil
}

func postError(s *string) *string {
	if s == nil {
		return nil
	}
	return filled(errorText(*s))
}

func checkPost(r ledger.PostResult) error {
	switch {
	case r.State != ledger.PostOpen && r.State != ledger.PostDelivered && r.State != ledger.PostRefused:
		return fmt.Errorf("%q is no end of an attempt", r.State)
	case r.State != ledger.PostDelivered && (r.Error == nil || *r.Error == ""):
		return errors.New("a failure without a reason")
	case r.State == ledger.PostDelivered && (r.Status == nil || r.Attempts < 1):
		return errors.New("delivered without an answer")
	case r.Attempts < 0:
		return errors.New("a negative number of attempts")
	}
	return nil
}
