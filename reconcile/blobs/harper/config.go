package harper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// Role is what a node is there for. The zero value is Both.
type Role uint8

// The roles: its blobs are looked at, it is asked for copies, or both.
const (
	Both Role = iota
	Check
	Donor
)

// Relation is what nodes have to do with each other. The zero value is Replicated.
type Relation uint8

// Replicated nodes hold the same bytes under the same version of a record; Independent
// ones were filled separately, so that only a recorded digest says that bytes are equal.
const (
	Replicated Relation = iota
	Independent
)

// Timers bound requests to nodes. Zero fields have the defaults of [DefaultTimers].
type Timers struct {
	// Connect bounds the making of a connection, FirstByte the wait for the head of an
	// answer, Stall the wait for the next bytes of a body.
	Connect, FirstByte, Stall time.Duration
	// Total bounds a whole answer: this long, and the time that its length takes at
	// BytesPerSecond.
	Total          time.Duration
	BytesPerSecond int64
}

// DefaultTimers: an old node never answers for a blob that is gone, and cuts off a body
// that is too short after half a minute; both show far earlier here. A healthy answer
// takes milliseconds.
func DefaultTimers() Timers {
	return Timers{Connect: 3 * time.Second, FirstByte: 5 * time.Second, Stall: 10 * time.Second, Total: time.Minute, BytesPerSecond: 64 << 10}
}

func (t Timers) orDefault() Timers {
	d := DefaultTimers()
	return Timers{cmp.Or(t.Connect, d.Connect), cmp.Or(t.FirstByte, d.FirstByte), cmp.Or(t.Stall, d.Stall),
		cmp.Or(t.Total, d.Total), cmp.Or(t.BytesPerSecond, d.BytesPerSecond)}
}

// total is how long an answer of so many bytes (-1: not told) may take.
func (t Timers) total(length int64) time.Duration {
	if length <= 0 {
		return t.Total
	}
	return t.Total + time.Duration(float64(length)/float64(t.BytesPerSecond)*float64(time.Second))
}

// Node is one Harper node.
type Node struct {
	// Name stands in locations, reports and plans.
	Name string
	// URL of the REST port, OperationsURL of the operations port; the latter may be empty.
	URL, OperationsURL string
	// Authorization is the value of that header; empty sends none.
	Authorization string
	Role          Role
	// Concurrency is how many requests are under way at once (0: 4), RequestsPerSecond
	// how many are begun (0: 20; below 0: no bound).
	Concurrency       int
	RequestsPerSecond float64
	// Control is a blob that is known to be good; the zero value means that one is taken
	// which this process has read whole.
	Control Control
}

// Control names a blob by its record's key, as text.
type Control struct{ Path, Key, Attribute string }

// Set is one attribute, or several, of one table.
type Set struct {
	Database, Table string
	// Path of the table on the REST port; empty: the table's name.
	Path string
	// Key is the attribute that identifies a record; empty: "id".
	Key string
	// Attributes hold the blobs.
	Attributes []string
	// Size and Digest are attributes of the record that hold the blob's length and
	// digest; either may be empty. A set that has them has one blob attribute.
	Size, Digest string
	// Algorithm of a digest that does not name its own: sha256 (or empty), md5, crc32c.
	Algorithm string
	// PageSize is how many records one request enumerates (0: 500).
	PageSize int
}

// Config of a collection.
type Config struct {
	// Name of the collection.
	Name     string
	Nodes    []Node
	Sets     []Set
	Relation Relation
	// Grace is how long a blob may be on its way (0: 30 minutes).
	Grace  time.Duration
	Timers Timers
	// Repair allows to ask nodes to repair themselves; RepairWait is how long the effect
	// is waited for (0: 2 minutes).
	Repair     bool
	RepairWait time.Duration
	// LeaveAlone is how long a node that failed its control is asked nothing (0: 1 minute).
	LeaveAlone time.Duration
	// Sighted tells how long ago an earlier pass first saw that an object was not whole,
	// by the clock of the ledger; 0 is not known. Nil knows nothing. Only what has been
	// in flight for longer than Grace is called damage.
	Sighted func(ctx context.Context, loc objstore.Location) (time.Duration, error)
	Logger  *slog.Logger
}

const (
	defaultConcurrency = 4
	defaultRate        = 20
	defaultPage        = 500
	defaultGrace       = 30 * time.Minute // twice the 900 s after which a node gives a transfer up
	defaultRepairWait  = 2 * time.Minute
	defaultLeaveAlone  = time.Minute
)

// validate completes a configuration; errors name no credential.
func (c *Config) validate() error {
	c.Timers = c.Timers.orDefault()
	c.Grace, c.RepairWait, c.LeaveAlone = cmp.Or(c.Grace, defaultGrace), cmp.Or(c.RepairWait, defaultRepairWait), cmp.Or(c.LeaveAlone, defaultLeaveAlone)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Name == "" || len(c.Nodes) == 0 || len(c.Sets) == 0 {
		return errors.New("a Harper collection needs a name, nodes and sets")
	}
	c.Nodes, c.Sets = slices.Clone(c.Nodes), slices.Clone(c.Sets)
	names := map[string]bool{}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		n.Concurrency = cmp.Or(n.Concurrency, defaultConcurrency)
		n.RequestsPerSecond = cmp.Or(n.RequestsPerSecond, defaultRate)
		if n.Name == "" || strings.ContainsAny(n.Name, "/@?#% ") || names[n.Name] {
			return fmt.Errorf("node %q: a node needs a name of its own, without / @ ? # %% and spaces", n.Name)
		}
		names[n.Name] = true
		for _, text := range []string{n.URL, n.OperationsURL} {
			if text == "" && n.URL != "" {
				continue
			}
			u, err := url.Parse(text)
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
				return fmt.Errorf("node %s: an address is http(s)://HOST[:PORT][/PATH], without credentials", n.Name)
			}
		}
	}
	units := map[string]bool{}
	for i := range c.Sets {
		s := &c.Sets[i]
		s.Path, s.Key, s.PageSize, s.Algorithm = strings.Trim(cmp.Or(s.Path, s.Table), "/"), cmp.Or(s.Key, "id"), cmp.Or(s.PageSize, defaultPage), cmp.Or(s.Algorithm, "sha256")
		switch {
		case s.Table == "" || len(s.Attributes) == 0:
			return errors.New("a set needs a table and attributes")
		case len(s.Attributes) > 1 && (s.Size != "" || s.Digest != ""):
			return fmt.Errorf("set %s: size and digest belong to a set with one attribute", s.Table)
		case reconcile.NewHash(s.Algorithm) == nil:
			return fmt.Errorf("set %s: unknown algorithm %q", s.Table, s.Algorithm)
		case s.PageSize < 1:
			return fmt.Errorf("set %s: a page has at least one record", s.Table)
		}
		for _, a := range s.Attributes {
			if a == "" || strings.ContainsAny(a, "./,()&%") || units[s.Path+"."+a] {
				return fmt.Errorf("set %s: attribute %q stands twice, or is no name", s.Table, a)
			}
			units[s.Path+"."+a] = true
		}
	}
	return nil
}
