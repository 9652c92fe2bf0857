package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/rocketkeep/reconcile/internal/config"
	"github.com/rocketkeep/reconcile/internal/ledger"
	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/blobs/harper"
	"github.com/rocketkeep/reconcile/reconcile/pass"
)

// openNodes makes the clusters of the collections that lie on Harper nodes, for this
// pass.
func (w *work) openNodes() error {
	for _, c := range w.found.collections {
		if c.cfg.References.Harper == nil {
			continue
		}
		cl, err := harper.New(w.harperConfig(c))
		if err != nil {
			return err
		}
		c.cluster, c.reader, c.allow = cl, cl.Records(), cl.Allow()
		w.peers[c.root.Canonical()] = cl.Peers()
	}
	return nil
}

// harperRoot is the place of a collection on nodes as a target.
func harperRoot(name string) objstore.Location {
	return objstore.Location{Scheme: harper.Scheme, Endpoint: name, Bucket: name}
}

func (w *work) harperConfig(c *collection) harper.Config {
	h := c.cfg.References.Harper
	out := harper.Config{Name: c.cfg.Name, Grace: h.Grace.Std(), Repair: h.Repair == "operation", RepairWait: h.RepairWait.Std(), LeaveAlone: h.LeaveAlone.Std(), Logger: w.log,
		Timers: harper.Timers{Connect: h.Timers.Connect.Std(), FirstByte: h.Timers.FirstByte.Std(), Stall: h.Timers.Stall.Std(), Total: h.Timers.Total.Std(),
			BytesPerSecond: int64(h.Timers.MinBytesPerSecond)}}
	if h.Relation == "independent" {
		out.Relation = harper.Independent
	}
	for _, n := range h.Nodes {
		node := harper.Node{Name: n.Name, URL: n.URL, OperationsURL: n.OperationsURL, Authorization: authorization(n.Credentials.Reveal()),
			Role: map[string]harper.Role{"both": harper.Both, "check": harper.Check, "donor": harper.Donor}[n.Role], Concurrency: int(n.Concurrency), RequestsPerSecond: n.MaxRequestsPerSecond}
		if n.Control != nil {
			node.Control = harper.Control(*n.Control)
		}
		out.Nodes = append(out.Nodes, node)
	}
	for _, s := range h.Sets {
		out.Sets = append(out.Sets, harper.Set{Database: s.Database, Table: s.Table, Path: s.Path, Key: s.Key, Attributes: s.Attributes, Size: s.Size, Digest: s.Digest,
			Algorithm: s.Algorithm, PageSize: int(s.PageSize)})
	}
	if w.ledger != nil {
		out.Sighted = func(ctx context.Context, loc objstore.Location) (time.Duration, error) {
			return w.sighted(ctx, c.root, loc)
		}
	}
	return out
}

// authorization is the header for "user:password" or "Bearer TOKEN".
func authorization(credentials string) string {
	if credentials == "" || strings.HasPrefix(credentials, "Bearer ") {
		return credentials
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(credentials))
}

// sighted is how long ago a pass first saw that an object was not whole.
func (w *work) sighted(ctx context.Context, root, loc objstore.Location) (time.Duration, error) {
	id := reconcile.FindingID(root, reconcile.RoleBlob, loc)
	seen, err := w.ledger.Sightings(ctx, []string{id})
	if err != nil {
		return 0, err
	}
	s, ok := seen[id]
	if !ok {
		return 0, nil
	}
	now, err := w.ledger.Now(ctx)
	if err != nil {
		return 0, err
	}
	return now.Sub(s.FirstSeenAt), nil
}

// healNodes asks nodes to repair themselves, for the findings that the actions are
// about, and records what came of it. It returns the actions that are not about nodes.
func (w *work) healNodes(ctx context.Context, out *pass.Outcome, actions []reconcile.PlanAction) ([]reconcile.PlanAction, error) {
	var rest []reconcile.PlanAction
	for _, act := range actions {
		c := w.onNodes(act.URI)
		if c == nil {
			rest = append(rest, act)
			continue
		}
		if ctx.Err() != nil {
			continue
		}
		if err := w.healOne(ctx, out, c, act); err != nil {
			return rest, err
		}
	}
	return rest, nil
}

// onNodes is the collection on nodes with this target URI, if it is one.
func (w *work) onNodes(uri string) *collection {
	for _, c := range w.found.collections {
		if c.cluster != nil && c.root.String() == uri {
			return c
		}
	}
	return nil
}

func (w *work) healOne(ctx context.Context, out *pass.Outcome, c *collection, act reconcile.PlanAction) error {
	var fs []reconcile.Finding
	for _, f := range out.Findings {
		if f.Target == act.Target && f.ProposedAction == act.Action && len(f.BlockedBy) == 0 && slices.Contains(act.Files, f.Path) {
			fs = append(fs, f)
		}
	}
	if len(fs) == 0 {
		return nil
	}
	opts := w.applyOptions()
	lease, err := w.ledger.Acquire(ctx, c.root.Canonical(), opts.Owner, ledger.DefaultLease)
	if errors.Is(err, ledger.ErrLocked) {
		w.log.Warn("target is locked", "target", act.Target, "err", err)
		if r := resultAt(out, act.URI); r != nil {
			moveState(out, r, reconcile.StateLocked, reconcile.Ptr("locked"))
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", act.Target, err)
	}
	held, stop := ledger.Keep(ctx, w.ledger, lease, ledger.DefaultLease)
	defer func() {
		stop()
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordGrace)
		defer cancel()
		if err := w.ledger.Release(rctx, lease); err != nil {
			w.log.Warn("release lock", "target", act.Target, "err", err)
		}
	}()
	recs := make([]ledger.Repair, len(fs))
	for i, f := range fs {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("make a repair id: %w", err)
		}
		recs[i] = ledger.Repair{Where: ledger.Target{URI: c.root.Canonical(), Name: act.Target, Store: f.Store, Kind: "blobs"}, PassID: opts.PassID, Actor: opts.Actor, Host: opts.Host, Reason: opts.Reason}
		recs[i].RepairOutcome = reconcile.RepairOutcome{RepairID: id.String(), Target: act.Target, Store: f.Store, Action: act.Action, State: ledger.StateIntended, Trigger: opts.Trigger, Fragments: []reconcile.RepairFragment{}, Files: []string{f.Path}}
		if err := w.ledger.Intend(held, lease, recs[i]); err != nil {
			return fmt.Errorf("record that a node is asked to repair %s, before it is: %w", f.Path, err)
		}
	}
	began := time.Now()
	for i, h := range c.cluster.Heal(held, fs) {
		if err := w.healed(ctx, out, lease, recs[i], h, time.Since(began)); err != nil {
			return err
		}
	}
	return nil
}

var healStates = map[harper.HealState]string{harper.HealUncertain: ledger.StateFailed, harper.Healed: ledger.StateApplied, harper.NotHealed: ledger.StateFailed,
	harper.HealRefused: ledger.StateRefused, harper.HealSuperseded: ledger.StateRefused}

// healed records what came of asking a node. What a node does after its time is over is
// for the next look to see.
func (w *work) healed(ctx context.Context, out *pass.Outcome, lease ledger.Lease, rec ledger.Repair, h harper.Healing, took time.Duration) error {
	cut := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordGrace)
	defer cancel()
	o := ledger.Outcome{State: healStates[h.State], Source: &h.Source, DurationMS: reconcile.Ptr(took.Milliseconds())}
	if h.State == harper.Healed {
		o.BytesRestored, o.Proof = &h.Bytes, &h.Proof
		out.Totals.BytesRestored += h.Bytes
	} else {
		text := h.State.String()
		if h.Err != nil {
			text += ": " + h.Err.Error()
		}
		o.Error = &text
	}
	if err := w.ledger.Settle(ctx, lease, rec.RepairID, o); err != nil {
		return fmt.Errorf("record what became of %s: %w", rec.Files[0], err)
	}
	r := rec.RepairOutcome
	r.State, r.Source, r.BytesRestored, r.Proof, r.DurationMS, r.Error = o.State, o.Source, o.BytesRestored, o.Proof, o.DurationMS, o.Error
	out.Repairs = append(out.Repairs, r)
	if h.State == harper.Healed {
		return errors.Join(w.ledger.RefetchDone(ctx, h.FindingID), w.ledger.Verified(ctx, lease, rec.RepairID))
	}
	if cut {
		return nil // the pass ended; the node may do it yet
	}
	_, err := w.ledger.RefetchFailed(ctx, ledger.DefaultRefetch(), ledger.RefetchFailure{FindingID: h.FindingID, Target: rec.Where.URI, Text: *o.Error})
	return err
}

// reportOnly: what lies on nodes is brought back by the nodes, where that is allowed.
func reportOnly(b config.Blobs) bool {
	return b.References.Harper != nil && b.References.Harper.Repair != "operation"
}
