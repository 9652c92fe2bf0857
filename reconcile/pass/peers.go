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
	case reconcile.Missing, reconcile.SizeMismatch, reconcile.ChecksumMismatch, reconcile.Unreadable:
	default:
		return false
	}
	if reason := deref(f.Reason); reason == reconcile.ReasonMetadataSizeWrong || reason == reasonLogEntry {
		return false
	}
	return !s.drop && s.ref.Location != (objstore.Location{}) && slices.Contains(mendable, f.Role)
}

// askPeers asks the target's peers for each damaged object that no older version can
// bring back: who has a copy, who says that there is none, and who gives no answer.
func (p *engine) askPeers(ctx context.Context, l *look, open []*suspect) error {
	if p.opts.Peers == nil {
		return nil
	}
	peers := p.opts.Peers(l.target)
	var todo []*suspect
	var ids []string
	for _, s := range open {
		if len(peers) > 0 && !s.find.Restorable && toMend(s) {
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
		// An object that can only be waited for is not asked for again before its time;
		// one that could be dropped is, since a drop needs today's word.
		was, ok := past[s.find.FindingID]
		if ok && !was.Due && !p.opts.Recall.AskAgain && !droppable(s.find.Role) {
			s.remember(peers, was)
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
			outside := p.askEach(ctx, s, peers, was.Disproved)
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

// remember takes over what peers said the last time they were asked.
func (s *suspect) remember(peers []reconcile.Peer, was ledger.Refetch) {
	for _, p := range peers {
		if slices.Contains(was.PeersSaidNo, p.Name()) {
			s.find.PeersAsked = append(s.find.PeersAsked, p.Name())
		} else {
			s.find.BlockedBy = append(s.find.BlockedBy, blockedRung(p))
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
// the copy has an ETag, and the peer one place for it. What a web server says lets no
// rows be dropped, and so neither does what it holds.
func (s *suspect) disproved(peer, etag string, past map[string]string) bool {
	server := strings.HasPrefix(peer, "http://") || strings.HasPrefix(peer, "https://")
	if etag == "" || len(s.ref.Alternates) > 0 || server && s.find.Role != reconcile.RoleBlob {
		return false
	}
	was, ok := past[peer]
	return ok && was == disproof(s.ref, etag)
}

// askEach asks every peer for one object. past are copies that failed their proof
// before. outside are the peers that cannot hold it.
func (p *engine) askEach(ctx context.Context, s *suspect, peers []reconcile.Peer, past map[string]string) (outside []string) {
	for _, peer := range peers {
		at, err := peer.Ask(ctx, s.ref)
		switch {
		case errors.Is(err, reconcile.ErrNotBelow):
			outside = append(outside, peer.Name())
			continue
		case err == nil && s.disproved(peer.Name(), at.ETag, past):
			p.opts.Logger.Info("a peer still holds the copy that failed its proof, and counts as having none", "peer", peer.Name(), "path", s.find.Path)
		case err == nil:
			s.find.PeersHaving = append(s.find.PeersHaving, peer.Name())
		case !errors.Is(err, objstore.ErrNotExist) || errors.Is(err, objstore.ErrNoSuchBucket):
			s.find.BlockedBy = append(s.find.BlockedBy, blockedRung(peer))
			p.opts.Logger.Warn("a peer gave no answer", "peer", peer.Name(), "path", s.find.Path, "err", err)
		}
		s.find.PeersAsked = append(s.find.PeersAsked, peer.Name())
	}
	s.lostWhenAllSaidNo()
	return outside
}

// lostWhenAllSaidNo says lost of what is missing, of what no version is left, and of
// which every peer that could hold it said that it does not.
func (s *suspect) lostWhenAllSaidNo() {
	f := &s.find
	open := slices.ContainsFunc(f.BlockedBy, func(b string) bool {
		return b == reconcile.BlockedVersionsUnknown || strings.HasPrefix(b, reconcile.BlockedRungOpen)
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
			PeersSaidNo: append(saidNo(f), outside...), Text: "no peer has a copy"}); err != nil {
			return fmt.Errorf("%w: note that no peer has %s: %w", errMemory, f.Path, err)
		}
	}
	return nil
}

// saidNo are the peers that were asked, have no copy and gave an answer.
func saidNo(f *reconcile.Finding) []string {
	var out []string
	for _, name := range f.PeersAsked {
		if !slices.Contains(f.PeersHaving, name) && !slices.Contains(f.BlockedBy, reconcile.BlockedRungOpen+name) {
			out = append(out, name)
		}
	}
	return out
}
