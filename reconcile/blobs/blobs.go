// Package blobs is a collection of blobs as a reconcile.Source: every object that the
// application's records refer to must be there, with the size and checksum that are
// recorded. It reads records through package refs and writes nothing.
package blobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/blobs/refs"
)

// Kind is the kind of these targets; their names are "blobs:" and the configured name.
const Kind = "blobs"

// Stores resolves places and gives read-only stores for them.
type Stores interface {
	Locate(uri string) (objstore.Location, error)
	Reader(ctx context.Context, loc objstore.Location) (objstore.Reader, error)
}

// Options of a collection. Every field must be set, except where noted.
type Options struct {
	// Root is where keys lie below; Allow are further places that absolute keys may
	// point at (may be empty).
	Root  objstore.Location
	Allow []objstore.Location
	// Records are the references.
	Records refs.Reader
	// ID names where the references come from: positions are good for no other.
	ID     string
	Stores Stores
	// PendingMaxAge is how long a blob may be on its way after its record was made.
	PendingMaxAge time.Duration
	// ReportOnly proposes nothing: there is no way to put a copy where it belongs.
	ReportOnly bool
	// Format of the objects; nil where they are the blobs' bytes and nothing else. With
	// a format the collection is ReportOnly.
	Format *Format
	// Nodes: the places of Allow are nodes that bring their blobs back themselves.
	Nodes bool
	// Sample is the share of blobs that is looked at, above 0 and at most 1: the same
	// ones for the whole of a day (UTC), others on the next.
	Sample float64
	// Day is the day that sampling goes by.
	Day time.Time
	// Throttle is called before so many bytes are read; may be nil.
	Throttle func(ctx context.Context, bytes int) error
	Logger   *slog.Logger
}

// Target is the target of a configured collection.
func Target(name string, root objstore.Location) reconcile.Target {
	return reconcile.Target{Name: "blobs:" + name, Store: root.String(), Kind: Kind, Location: root, Root: root}
}

// Collection is one collection. It is a reconcile.Source and a reconcile.Prover.
type Collection struct {
	target reconcile.Target
	opts   Options
	// namedSince is when everything was named at least, by the store's clock.
	namedSince time.Time

	mu sync.Mutex // guards the rest
	// position of the records goes on after what was yielded so far; begin is where the
	// walk starts.
	position, begin string
	// bad are the rows that name no blob as they stand, by reason.
	bad     map[string]badRows
	sampled int64
	// contradicted are keys whose records say different things of one blob.
	contradicted map[string]bool
	// contents are the lengths of the bytes inside objects of a format, where those are
	// whole and not what is recorded.
	contents map[string]int64
}

type badRows struct {
	Count int64  `json:"count"`
	First string `json:"first"`
}

var (
	_ reconcile.Source = (*Collection)(nil)
	_ reconcile.Prover = (*Collection)(nil)
)

// New makes the source of a collection. It does not touch the network.
func New(t reconcile.Target, opts Options) *Collection {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	opts.ReportOnly = opts.ReportOnly || opts.Format != nil
	return &Collection{target: t, opts: opts, bad: map[string]badRows{}, contradicted: map[string]bool{}, contents: map[string]int64{}}
}

// Target implements reconcile.Source.
func (c *Collection) Target() reconcile.Target { return c.target }

// Open implements reconcile.Source.
func (c *Collection) Open(ctx context.Context) (reconcile.Facts, error) {
	if absent := c.absentRoot(ctx); absent != nil {
		return *absent, nil
	}
	since, err := c.opts.Records.NamedSince(ctx)
	if err != nil {
		return reconcile.Facts{}, fmt.Errorf("read the references of %s: %w", c.target.Name, err)
	}
	c.namedSince = since
	return reconcile.Facts{}, nil
}

// Reasons of references that cannot be looked at as they stand.
const (
	reasonOutside = "outside_collection" // an absolute URI below neither uri nor allow
	reasonBadKey  = "bad_key"            // names no object of this store
)

// References implements reconcile.Source.
func (c *Collection) References(ctx context.Context) iter.Seq2[reconcile.Reference, error] {
	return func(yield func(reconcile.Reference, error) bool) {
		for rec, err := range c.opts.Records.Records(ctx, c.begin) {
			var row *refs.RowError
			switch {
			case errors.As(err, &row):
				c.note(row)
				continue
			case err != nil:
				yield(reconcile.Reference{}, err)
				return
			}
			chosen := c.chosen(rec.Key)
			c.mu.Lock()
			c.position = rec.Position // goes on after this one, which is looked at now
			if !chosen {
				c.sampled++
			}
			c.mu.Unlock()
			if chosen && !yield(c.reference(rec), nil) {
				return
			}
		}
		if counter, ok := c.opts.Records.(refs.Counter); ok {
			n := counter.Counts()
			c.opts.Logger.Info("read the references", "target", c.target.Name, "rows", n.Rows, "records", n.Records, "unnamed", n.Unnamed, "doubled", n.Doubled,
				"contradicting", n.Contradicting, "unremembered", n.Unremembered, "bad", n.Bad)
		}
	}
}

// note counts a row that is not as it should be.
func (c *Collection) note(row *refs.RowError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.bad[row.Reason]
	if b.Count == 0 {
		b.First = row.Error()
	}
	b.Count += max(row.Count, 1)
	c.bad[row.Reason] = b
	if row.Position != "" {
		c.position = row.Position
	}
}

// chosen reports whether a key is in today's sample.
func (c *Collection) chosen(key string) bool {
	if c.opts.Sample >= 1 {
		return true
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, c.opts.Day.UTC().Format(time.DateOnly)+"\x00"+key)
	// The high bits of FNV mix too little for short keys.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x>>11)/(1<<53) < c.opts.Sample
}

// reference resolves a record.
func (c *Collection) reference(rec refs.Record) reconcile.Reference {
	ref := reconcile.Reference{Role: reconcile.RoleBlob, Path: rec.Key, Base: c.opts.Root, Checksum: rec.Checksum, Record: rec.Record,
		PhysicalRows: reconcile.UnknownRows, LiveRows: reconcile.UnknownRows}
	if rec.Size > 0 {
		ref.Size = rec.Size
	}
	if c.opts.Format != nil {
		c.opts.Format.inside(&ref)
	}
	loc, base, reason := c.locate(rec.Key)
	if reason != "" {
		ref.Base, ref.Reason = objstore.Location{}, reason
		return ref
	}
	ref.Location, ref.Base = loc, base
	return ref
}

// locate finds the place of a key. Keys are exact: only an absolute URI is parsed, and
// only a path on disk can be left by "..".
func (c *Collection) locate(key string) (loc, base objstore.Location, reason string) {
	if absolute(key) {
		loc, err := c.opts.Stores.Locate(key)
		switch {
		case errors.Is(err, objstore.ErrUnsupported):
			return loc, base, reasonOutside // at any rate not below what can be looked at
		case err != nil:
			return objstore.Location{}, base, reasonBadKey
		}
		for _, at := range append([]objstore.Location{c.opts.Root}, c.opts.Allow...) {
			if name, below := loc.Rel(at); below && name != "" {
				return loc, at, ""
			}
		}
		return objstore.Location{}, base, reasonOutside
	}
	root := c.opts.Root
	if root.Scheme == "file" && slices.Contains(strings.Split(key, "/"), "..") {
		return loc, base, reasonOutside
	}
	if key == "" || root.Scheme == "file" && !fileName(key) {
		return loc, base, reasonBadKey
	}
	loc = root.Dir()
	loc.Key += key
	return loc, root, ""
}

// fileName reports whether a key names exactly one file below a folder: what the system
// reads as another name, or cannot read, names none.
func fileName(key string) bool {
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part == "." || len(part) > maxFileName || strings.ContainsRune(part, 0) {
			return false
		}
	}
	return true
}

// maxFileName is the longest name of a file, in bytes, on Linux's file systems.
const maxFileName = 255

// absolute reports whether a key is a URI: a scheme as RFC 3986 has it, and "://".
func absolute(key string) bool {
	scheme, _, ok := strings.Cut(key, "://")
	for i, r := range scheme {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || (r < '0' || r > '9') && r != '+' && r != '-' && r != '.') {
			return false
		}
	}
	return ok && scheme != ""
}

// Unread implements reconcile.Source.
func (c *Collection) Unread() []reconcile.NotChecked {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []reconcile.NotChecked
	for _, reason := range slices.Sorted(maps.Keys(c.bad)) {
		b := c.bad[reason]
		out = append(out, reconcile.NotChecked{Role: reconcile.RoleBlob, Count: reconcile.Ptr(b.Count), Reason: "rows of the references: " + b.First})
	}
	if c.sampled > 0 {
		out = append(out, reconcile.NotChecked{Role: reconcile.RoleBlob, Count: reconcile.Ptr(c.sampled), Reason: fmt.Sprintf("a sample of %g is looked at", c.opts.Sample)})
	}
	return out
}

// stand is where a walk stands: what it counted would be told by nobody if it went on
// without.
type stand struct {
	Position []byte             `json:"position"` // keys need not be UTF-8
	Sampled  int64              `json:"sampled"`
	Bad      map[string]badRows `json:"bad"`
}

// Position is where a walk may go on that is broken off now; empty when it cannot.
func (c *Collection) Position() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.opts.Records.Resumable() || c.position == "" {
		return ""
	}
	b, err := json.Marshal(stand{[]byte(c.position), c.sampled, c.bad})
	if err != nil {
		return ""
	}
	return string(b)
}

// SourceID names what positions are good in: these references, what they are said of,
// and of a sample the share and the day.
func (c *Collection) SourceID() string {
	id := c.opts.ID
	if c.opts.Format != nil {
		id += ", " + c.opts.Format.Name
	}
	if c.opts.Sample >= 1 {
		return id
	}
	return fmt.Sprintf("%s, %g of it on %s", id, c.opts.Sample, c.opts.Day.UTC().Format(time.DateOnly))
}

// Resume makes the walk go on at a position; it comes before References. An error says
// that the position is not good any more.
func (c *Collection) Resume(ctx context.Context, position string) error {
	var s stand
	if err := json.Unmarshal([]byte(position), &s); err != nil || len(s.Position) == 0 || !c.opts.Records.Resumable() {
		return refs.ErrPositionGone
	}
	at := string(s.Position)
	for _, err := range c.opts.Records.Records(ctx, at) {
		// What else is wrong the walk itself will meet, and the position stays good.
		if errors.Is(err, refs.ErrPositionGone) {
			return err
		}
		break
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin, c.position, c.sampled = at, at, s.Sampled
	c.bad = map[string]badRows{}
	maps.Copy(c.bad, s.Bad)
	return nil
}

// Named resolves keys again, as the records say now.
func (c *Collection) Named(ctx context.Context, keys []string) ([]reconcile.Reference, error) {
	recs, err := c.opts.Records.Confirm(ctx, keys)
	if err != nil {
		return nil, err
	}
	out := make([]reconcile.Reference, 0, len(recs))
	for _, key := range keys {
		if rec, ok := recs[key]; ok {
			out = append(out, c.reference(rec))
		}
	}
	return out, nil
}

// Revisit implements reconcile.Source: a record that is gone, or that says something
// else of its blob by now, no longer names what was looked for.
func (c *Collection) Revisit(ctx context.Context, asked []reconcile.Reference) (reconcile.Revisit, error) {
	keys := make([]string, len(asked))
	for i, ref := range asked {
		keys[i] = ref.Path
	}
	recs, err := c.opts.Records.Confirm(ctx, keys)
	if err != nil {
		return reconcile.Revisit{}, fmt.Errorf("read the references of %s again: %w", c.target.Name, err)
	}
	rev := reconcile.Revisit{Named: make([]bool, len(asked))}
	for i, ref := range asked {
		rec, ok := recs[ref.Path]
		now := c.reference(rec)
		// What rows contradict each other in comes back as not recorded: the blob is named
		// all the same, and nothing says which of its records is right.
		size, sum := ref.Recorded()
		nowSize, nowSum := now.Recorded()
		less := nowSize == 0 && size != 0 || nowSum == "" && sum != ""
		rev.Named[i] = ok && now.Location == ref.Location && (nowSize == size || nowSize == 0) && (nowSum == sum || nowSum == "")
		if rev.Named[i] && less {
			c.mu.Lock()
			c.contradicted[ref.Path] = true
			c.mu.Unlock()
		}
	}
	return rev, nil
}

// Older implements reconcile.Source: the references as a whole show how long ago each
// blob was named, where their store tells its age. minAge is that of blobs.
func (c *Collection) Older(_ context.Context, asked []reconcile.Reference, minAge time.Duration) ([]bool, error) {
	out := make([]bool, len(asked))
	old := minAge <= 0 || !c.namedSince.IsZero() && c.opts.Day.Sub(c.namedSince) >= minAge
	for i := range out {
		out[i] = old
	}
	return out, nil
}

func (c *Collection) isContradicted(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.contradicted[key]
}

// Propose implements reconcile.Source. Nothing is ever dropped: a blob without a copy
// anywhere is recorded as lost.
func (c *Collection) Propose(_ context.Context, findings []reconcile.Finding, _ reconcile.Policy) ([]reconcile.PlanAction, error) {
	restore := reconcile.PlanAction{Target: c.target.Name, URI: c.target.Location.String(), Action: reconcile.ActionRestore, Fragments: []reconcile.PlanFragment{}, Files: []string{}}
	refetch := restore
	refetch.Action, refetch.Files = reconcile.ActionRefetch, []string{}
	var from []string
	for i := range findings {
		f := &findings[i]
		c.showContent(f)
		if !f.Verdict.Damaged() {
			f.BlockedBy = []string{}
			continue
		}
		switch {
		case c.opts.ReportOnly:
		case c.isContradicted(f.Path):
			f.BlockedBy = append(f.BlockedBy, reconcile.BlockedReplaceUnproven)
		case f.Restorable && (c.Provable(f.Ref) || !f.PeersMayAgree()):
			f.ProposedAction = reconcile.ActionRestore
			if !c.Provable(f.Ref) {
				// An older version alone proves nothing of itself.
				f.BlockedBy = append(f.BlockedBy, reconcile.BlockedReplaceUnproven)
			}
		case len(f.PeersHaving) > 0:
			f.ProposedAction = reconcile.ActionRefetch
		case f.Verdict == reconcile.SizeMismatch || f.Verdict == reconcile.ChecksumMismatch:
			// Something is there, and nothing says that it is worse than nothing.
			f.BlockedBy = append(f.BlockedBy, reconcile.BlockedReplaceUnproven)
		}
		if _, below := f.Ref.Location.Rel(c.opts.Root); !below && f.ProposedAction != reconcile.ActionNone && !c.opts.Nodes {
			// What lies elsewhere is looked at only.
			f.BlockedBy = append(f.BlockedBy, reconcile.BlockedOutsideRoot)
		}
		f.BlockedBy = slices.DeleteFunc(f.BlockedBy, func(b string) bool {
			// Of what blocks, only these are about bringing a blob back; where nothing is to
			// be done, what is not known says why the blob is not lost.
			mine := b == reconcile.BlockedAcknowledged || b == reconcile.BlockedCoolingDown && f.RetryAt != nil || strings.HasPrefix(b, "replace_") || b == reconcile.BlockedOutsideRoot
			why := f.ProposedAction == reconcile.ActionNone && (b == reconcile.BlockedVersionsUnknown || strings.HasPrefix(b, reconcile.BlockedRungOpen))
			return !mine && !why
		})
		if len(f.BlockedBy) > 0 {
			continue
		}
		switch f.ProposedAction {
		case reconcile.ActionRestore:
			restore.Files = append(restore.Files, f.Path)
		case reconcile.ActionRefetch:
			refetch.Files = append(refetch.Files, f.Path)
			if !slices.Contains(from, f.PeersHaving[0]) {
				from = append(from, f.PeersHaving[0])
			}
		}
	}
	var out []reconcile.PlanAction
	if len(restore.Files) > 0 {
		restore.Source = reconcile.Ptr("versions")
		restore.ExpectedEffect = fmt.Sprintf("brings back %d blobs from older versions", len(restore.Files))
		out = append(out, restore)
	}
	if len(refetch.Files) > 0 {
		refetch.Source = reconcile.Ptr(strings.Join(from, " "))
		refetch.ExpectedEffect = fmt.Sprintf("brings back %d blobs from peers", len(refetch.Files))
		out = append(out, refetch)
	}
	return out, nil
}
