package harper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// HealState is what became of asking a node to repair a blob. The zero value asks for care.
type HealState uint8

// The states: whether it is healed is not known; it was read whole, as recorded; the
// time to wait is over and it was not; nothing was asked for; the record was written
// meanwhile.
const (
	HealUncertain HealState = iota
	Healed
	NotHealed
	HealRefused
	HealSuperseded
)

var healNames = [...]string{"uncertain", "healed", "not_healed", "refused", "superseded"}

// String is the word for logs.
func (s HealState) String() string { return healNames[s] }

// Healing is the outcome for one finding.
type Healing struct {
	FindingID string
	// Source is the node and the operation that it was asked for.
	Source string
	State  HealState
	// Bytes and Proof of a blob that is healed.
	Bytes int64
	Proof string
	// Err says why it is not.
	Err error
}

// ErrRepairOff: the configuration does not allow to ask nodes to repair themselves.
var ErrRepairOff = errors.New("repair is off for this collection")

// repairKey is what is asked for once a pass: a node sweeps a whole database.
type repairKey struct{ node, database string }

// Heal asks each node with damaged blobs once for each database to repair itself, and
// reads the blobs until they are as recorded or RepairWait is over: the node answers that
// it began, and nothing else ever. It answers for each finding, in their order. A context
// that ends begins no further operation.
func (c *Cluster) Heal(ctx context.Context, findings []reconcile.Finding) []Healing {
	out := make([]Healing, len(findings))
	units := make([]unit, len(findings))
	var open []int
	for i, f := range findings {
		h := &out[i]
		h.FindingID = f.FindingID
		u, err := c.unit(f.Ref.Location)
		if err == nil {
			units[i], h.Source = u, Scheme+"://"+u.node.cfg.Name+" repair_blob_data"
			err = c.refusal(f, u)
		}
		if err != nil {
			h.State, h.Err = HealRefused, err
			continue
		}
		if err, sent := c.ask(ctx, u); err != nil {
			if !sent {
				h.State = HealRefused
			}
			h.Err = err
			continue
		}
		open = append(open, i)
	}
	c.verify(ctx, findings, units, out, open)
	return out
}

// refusal says why nothing is asked for.
func (c *Cluster) refusal(f reconcile.Finding, u unit) error {
	switch {
	case !c.cfg.Repair:
		return ErrRepairOff
	case u.attr == "":
		return errors.New("names no blob")
	case c.cfg.Relation != Replicated:
		return errors.New("nodes that were filled separately do not repair each other")
	case u.node.ops == "":
		return fmt.Errorf("node %s has no operations_url", u.node.cfg.Name)
	case u.node.cfg.Role == Donor:
		return fmt.Errorf("node %s is a donor only", u.node.cfg.Name)
	case f.Verdict == reconcile.ChecksumMismatch:
		return errors.New("a node sees lengths, not content: wrong bytes of the right length it leaves as they are")
	case f.Verdict != reconcile.Missing && f.Verdict != reconcile.Unreadable && f.Verdict != reconcile.SizeMismatch && f.Verdict != reconcile.Lost:
		return fmt.Errorf("nothing is repaired on account of %s", f.Verdict)
	}
	return nil
}

// ask sends the operation, unless this pass has. sent is true when it may have arrived.
func (c *Cluster) ask(ctx context.Context, u unit) (err error, sent bool) {
	c.healMu.Lock()
	defer c.healMu.Unlock()
	key := repairKey{u.node.cfg.Name, u.set.Database}
	if err, asked := c.asked[key]; asked {
		return err, true
	}
	if ctx.Err() != nil {
		return context.Cause(ctx), false
	}
	// A node that does not even serve what it holds is not given more to do.
	if err := u.node.open(ctx, c.cfg.LeaveAlone); err != nil {
		return err, false
	}
	if err := u.node.prove(ctx, u.node.since(), c.cfg.LeaveAlone); err != nil {
		return err, false
	}
	var answer map[string]any
	err = u.node.operation(context.WithoutCancel(ctx), map[string]string{"operation": "repair_blob_data", "database": u.set.Database}, &answer)
	c.asked[key] = err
	c.cfg.Logger.Info("asked a node to repair its blobs", "node", key.node, "database", key.database, "err", err)
	var se *statusError
	return err, !errors.As(err, &se)
}

// verify reads what is to be healed, ever less often, until it is or time is over.
func (c *Cluster) verify(ctx context.Context, findings []reconcile.Finding, units []unit, out []Healing, open []int) {
	deadline := time.NewTimer(c.cfg.RepairWait)
	defer deadline.Stop()
	over := false
	for pause := c.cfg.RepairWait / 32; len(open) > 0; pause *= 2 {
		select {
		case <-time.After(pause):
		case <-deadline.C:
			over = true
		case <-ctx.Done():
			for _, i := range open {
				out[i].Err = context.Cause(ctx)
			}
			return
		}
		var still []int
		for _, i := range open {
			if c.healed(ctx, findings[i].Ref, units[i], &out[i]); out[i].State == NotHealed {
				still = append(still, i)
			}
		}
		if open = still; over {
			return
		}
	}
}

// healed looks at one blob once.
func (c *Cluster) healed(ctx context.Context, ref reconcile.Reference, u unit, h *Healing) {
	alg, _, _ := strings.Cut(ref.Checksum, ":")
	if reconcile.NewHash(alg) == nil {
		alg = u.set.Algorithm
	}
	l := u.node.lookAt(ctx, u, how{fresh: true}, []string{alg})
	before := c.notes.met(u)
	h.State, h.Err = NotHealed, nil
	switch {
	case ctx.Err() != nil:
		h.State, h.Err = HealUncertain, context.Cause(ctx)
	case l.etag != "" && before.etag != "" && l.etag != before.etag:
		h.State, h.Err = HealSuperseded, errors.New("the record was written since it was looked at")
	case l.outcome != whole:
		h.Err = noCopy(l)
	case ref.Size > 0 && l.got != ref.Size:
		h.Err = fmt.Errorf("%d bytes, recorded are %d", l.got, ref.Size)
	case ref.Checksum != "" && l.sums[alg] != ref.Checksum:
		h.Err = fmt.Errorf("its checksum is %s, recorded is %s", l.sums[alg], ref.Checksum)
	case ref.Size <= 0 && ref.Checksum == "" && (l.promised < 0 || before.promised >= 0 && before.promised != l.got):
		h.Err = errors.New("nothing recorded tells that it is whole")
	default:
		h.State, h.Bytes, h.Proof = Healed, l.got, "length"
		if ref.Checksum != "" {
			h.Proof = "checksum " + alg
		}
		c.notes.cured(u)
	}
}

// Halted tells which nodes failed their control, and so had nothing said of them.
func (c *Cluster) Halted() []objstore.Location {
	var out []objstore.Location
	for i, n := range c.order {
		n.health.mu.Lock()
		if n.health.tripped {
			out = append(out, c.Allow()[i])
		}
		n.health.mu.Unlock()
	}
	return out
}
