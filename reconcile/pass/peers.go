package pass

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// mendable are the roles whose objects may be brought back from somewhere else.
// Manifests, shard manifests and transactions may not: their names repeat over a
// table's lives.
var mendable = []reconcile.Role{reconcile.RoleData, reconcile.RoleDeletion, reconcile.RoleIndex, reconcile.RoleOverlay, reconcile.RoleRowIDs,
	reconcile.RoleBlobSidecar, reconcile.RoleWALGeneration, reconcile.RoleBlob}

// reasonLogEntry marks entries of a write-ahead log, which are no files of a
// generation yet and are never written by a repair.
const reasonLogEntry = "pending_wal_entry"

// toMend reports whether a confirmed finding asks for a copy from somewhere else.
func toMend(s *suspect) bool {
	f := &s.find
	switch f.Verdict {
	case reconcile.Missing, reconcile.Recoverable, reconcile.SizeMismatch, reconcile.ChecksumMismatch, reconcile.Unreadable:
	default:
		return false
	}
	if reason := deref(f.Reason); reason == reconcile.ReasonMetadataSizeWrong || reason == reasonLogEntry {
		return false
	}
	return !s.drop && s.ref.Location != (objstore.Location{}) && slices.Contains(mendable, f.Role)
}

// askPeers asks the target's peers for each damaged object that no older version can
// bring back alone: who has a copy, who says that there is none, and who gives no answer. An
// object whose last attempt failed waits for its next one, whatever a copy may come from.
func (p *engine) askPeers(ctx context.Context, l *look, open []*suspect) error {
	var peers []reconcile.Peer
	if p.opts.Peers != nil {
		peers = p.opts.Peers(l.target)
	}
	var todo []*suspect
	var ids []string
	for _, s := range open {
		if toMend(s) && (s.find.Restorable || len(peers) > 0) {
			todo = append(todo, s)
			ids = append(ids, s.find.FindingID)
		}
	}
	if len(todo) == 0 {
		return nil
	}
	past, err := p.refetches(ctx, ids)
	if err != nil {
		return err
	}
	g := new(errgroup.Group)
	lane := newLane(p.opts.Concurrency, len(p.looks))
	for _, s := range todo {
		was, ok := past[s.find.FindingID]
		waits := ok && !was.Due && !p.opts.Recall.AskAgain
		switch {
		case s.find.Restorable && (len(peers) == 0 || provable(l.src, s.ref)):
			if waits {
				s.wait(was)
			}
			continue
		case waits && !droppable(s.find.Role):
			// What can only be waited for is not asked for again before its time; what could
			// be dropped is, since a drop needs today's word.
			s.remember(peers, was, l.known[s.find.FindingID].finding())
			continue
		}
		if err := p.enter(ctx, lane); err != nil {
			for _, peer := range peers {
				s.find.BlockedBy = append(s.find.BlockedBy, blockedRung(peer))
			}
			continue
		}
		g.Go(func() error {
			defer p.leave(lane)
			outside, news := p.askEach(ctx, s, peers, was.Disproved)
			if waits && len(s.find.PeersHaving) > 0 && !news {
				s.wait(was)
			}
			if ctx.Err() == nil {
				l.mu.Lock()
				l.asked[s.find.FindingID] = outside
				l.mu.Unlock()
			}
			return nil
		})
	}
	_ = g.Wait()
	return nil
}

// provable reports whether what is recorded may prove a copy. Of the other objects an
// older version alone brings none back, and peers may.
func provable(src reconcile.Source, ref reconcile.Reference) bool {
	t, ok := src.(reconcile.ProofTeller)
	return !ok || t.Provable(ref)
}

// wait puts the object's next attempt off until it is due.
func (s *suspect) wait(was ledger.Refetch) {
	s.find.RetryAt = reconcile.Ptr(was.NextAttemptAt)
	if !slices.Contains(s.find.BlockedBy, reconcile.BlockedCoolingDown) {
		s.find.BlockedBy = append(s.find.BlockedBy, reconcile.BlockedCoolingDown)
	}
}

// droppable reports whether the last rung for a role takes something away.
func droppable(r reconcile.Role) bool {
	return r == reconcile.RoleData || r == reconcile.RoleDeletion || r == reconcile.RoleIndex
}

func blockedRung(p reconcile.Peer) string { return reconcile.BlockedRungOpen + p.Name() }

// refetches is what the ledger knows of earlier attempts.
func (p *engine) refetches(ctx context.Context, ids []string) (map[string]ledger.Refetch, error) {
	if !p.remembers() {
		return nil, nil
	}
	past, err := p.opts.Recall.Memory.RefetchState(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("%w: earlier attempts to fetch: %w", errMemory, err)
	}
	return past, nil
}

// remember takes over what peers said the last time they were asked: their no, their
// silence as the last look told it, and of the rest that an attempt with their copies
// failed.
func (s *suspect) remember(peers []reconcile.Peer, was ledger.Refetch, last reconcile.Finding) {
	for _, p := range peers {
		name := p.Name()
		switch {
		case slices.Contains(was.PeersSaidNo, name):
			s.find.PeersAsked = append(s.find.PeersAsked, name)
		case slices.Contains(last.BlockedBy, blockedRung(p)):
			s.find.BlockedBy = append(s.find.BlockedBy, blockedRung(p))
		default:
			if slices.Contains(last.PeersHaving, name) {
				s.find.PeersAsked, s.find.PeersHaving = append(s.find.PeersAsked, name), append(s.find.PeersHaving, name)
			}
			s.wait(was)
		}
	}
	s.lostWhenAllSaidNo()
}

// disproof names, for the ledger, a copy that is not the object: its ETag, and what it
// was held against. When the record changes, the copy may be the object after all.
func disproof(ref reconcile.Reference, etag string) string {
	return fmt.Sprintf("%s against %d bytes, %d rows, checksum %s", etag, ref.Size, ref.PhysicalRows, ref.Checksum)
}

// disproved reports whether what a peer holds now is the very copy that failed its
// proof before: then the peer has no copy. It is so only when nothing else can be meant:
// the copy has an ETag, and the peer one place for it. A peer whose word lets no rows be
// dropped tells no ETag.
func (s *suspect) disproved(peer, etag string, past map[string]string) bool {
	if etag == "" || len(s.ref.Alternates) > 0 {
		return false
	}
	was, ok := past[peer]
	return ok && was == disproof(s.ref, etag)
}

// askEach asks every peer for one object. past are copies that failed their proof
// before. outside are the peers that cannot hold it; news: a peer holds another copy
// than the one of its that failed.
func (p *engine) askEach(ctx context.Context, s *suspect, peers []reconcile.Peer, past map[string]string) (outside []string, news bool) {
	for _, peer := range peers {
		at, err := peer.Ask(ctx, s.ref)
		switch {
		case errors.Is(err, reconcile.ErrNotBelow):
			outside = append(outside, peer.Name())
			continue
		case err == nil && s.disproved(peer.Name(), at.ETag, past):
			p.opts.Logger.Info("a peer still holds the copy that failed its proof, and counts as having none", "peer", peer.Name(), "path", s.find.Path)
			s.find.SaidNo = append(s.find.SaidNo, peer.Name())
		case err == nil:
			s.find.PeersHaving = append(s.find.PeersHaving, peer.Name())
			failed, ok := past[peer.Name()]
			news = news || ok && at.ETag != "" && failed != disproof(s.ref, at.ETag)
		case !errors.Is(err, objstore.ErrNotExist) || errors.Is(err, objstore.ErrNoSuchBucket):
			s.find.BlockedBy = append(s.find.BlockedBy, blockedRung(peer))
			p.opts.Logger.Warn("a peer gave no answer", "peer", peer.Name(), "path", s.find.Path, "err", err)
		default:
			s.find.SaidNo = append(s.find.SaidNo, peer.Name())
		}
		s.find.PeersAsked = append(s.find.PeersAsked, peer.Name())
	}
	s.lostWhenAllSaidNo()
	return outside, news
}

// lostWhenAllSaidNo says lost of what is missing, of what no version is left, and of
// which every peer that could hold it said that it does not.
func (s *suspect) lostWhenAllSaidNo() {
	f := &s.find
	open := slices.ContainsFunc(f.BlockedBy, func(b string) bool {
		return b == reconcile.BlockedVersionsUnknown || b == reconcile.BlockedCoolingDown || strings.HasPrefix(b, reconcile.BlockedRungOpen)
	})
	if f.Verdict == reconcile.Missing && !open && len(f.PeersAsked) > 0 && len(f.PeersHaving) == 0 {
		f.Verdict = reconcile.Lost
	}
}

// rememberPeers notes the objects that no peer has, so that the next pass does not
// ask again before its time.
func (p *engine) rememberPeers(ctx context.Context, l *look, findings []reconcile.Finding) error {
	if !p.remembers() || p.opts.Peers == nil {
		return nil
	}
	for i := range findings {
		f := &findings[i]
		outside, asked := l.asked[f.FindingID]
		if !asked || len(f.PeersAsked) == 0 || len(f.PeersHaving) > 0 || droppable(f.Role) || !f.Verdict.Damaged() {
			continue
		}
		// Who cannot hold it will not have it the next time either.
		if _, err := p.opts.Recall.Memory.RefetchFailed(ctx, ledger.DefaultRefetch(), ledger.RefetchFailure{FindingID: f.FindingID, Target: l.target.Location.Canonical(),
			PeersSaidNo: slices.Concat(f.SaidNo, outside), Text: "no peer has a copy"}); err != nil {
			return fmt.Errorf("%w: note that no peer has %s: %w", errMemory, f.Path, err)
		}
	}
	return nil
}
