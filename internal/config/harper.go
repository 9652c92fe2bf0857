package config

import (
	"fmt"
	"strings"
	"time"
)

// HarperReferences are records of Harper nodes whose blobs lie on the nodes themselves:
// a collection of them has no uri, no allow and no peers of its own.
type HarperReferences struct {
	Nodes []HarperNode `yaml:"nodes"`
	Sets  []HarperSet  `yaml:"sets"`
	// Relation is replicated (the same version of a record has the same bytes on every
	// node) or independent (nodes were filled separately).
	Relation string `yaml:"relation"`
	// Grace is how long a blob may be in flight.
	Grace  Duration     `yaml:"grace"`
	Timers HarperTimers `yaml:"timers"`
	// LeaveAlone is how long a node that failed its control is asked nothing.
	LeaveAlone Duration `yaml:"leave_alone"`
	// Repair is off or operation: whether nodes are asked to repair themselves.
	// RepairWait is how long the effect is waited for.
	Repair     string   `yaml:"repair"`
	RepairWait Duration `yaml:"repair_wait"`
}

// HarperNode is one node.
type HarperNode struct {
	Name string `yaml:"name"`
	// URL of the REST port; OperationsURL, of the operations port, may be empty.
	URL           string `yaml:"url"`
	OperationsURL string `yaml:"operations_url"`
	// Credentials are "user:password", or "Bearer TOKEN".
	Credentials Secret `yaml:"credentials"`
	// Role is check, donor or both.
	Role                 string         `yaml:"role"`
	Concurrency          int64          `yaml:"concurrency"`
	MaxRequestsPerSecond float64        `yaml:"max_requests_per_second"`
	Control              *HarperControl `yaml:"control"`
}

// HarperControl names a blob of a node that is known to be good.
type HarperControl struct {
	Path      string `yaml:"path"`
	Key       string `yaml:"key"`
	Attribute string `yaml:"attribute"`
}

// HarperSet is a table and its blob attributes.
type HarperSet struct {
	Database string `yaml:"database"`
	Table    string `yaml:"table"`
	// Path on the REST port; empty is the table's name.
	Path       string   `yaml:"path"`
	Key        string   `yaml:"key"`
	Attributes []string `yaml:"attributes"`
	// Size and Digest are attributes that hold the blob's length and digest; Algorithm
	// is that of digests which do not name it.
	Size      string `yaml:"size"`
	Digest    string `yaml:"digest"`
	Algorithm string `yaml:"algorithm"`
	PageSize  int64  `yaml:"page_size"`
}

// HarperTimers bound requests to nodes. Total is the time for a whole answer, beside the
// time that its length takes at MinBytesPerSecond.
type HarperTimers struct {
	Connect           Duration `yaml:"connect"`
	FirstByte         Duration `yaml:"first_byte"`
	Stall             Duration `yaml:"stall"`
	Total             Duration `yaml:"total"`
	MinBytesPerSecond Bytes    `yaml:"min_bytes_per_second"`
}

// setDefaults implements defaulter. Twice the 900 s after which a node itself gives up
// is how long a transfer may take; an old node cuts a short body off after half a minute,
// so that a shorter stall shows first.
func (h *HarperReferences) setDefaults() {
	h.Relation, h.Repair = "replicated", "off"
	h.Grace, h.LeaveAlone, h.RepairWait = Duration(30*time.Minute), Duration(time.Minute), Duration(2*time.Minute)
	h.Timers = HarperTimers{Connect: Duration(3 * time.Second), FirstByte: Duration(5 * time.Second), Stall: Duration(10 * time.Second),
		Total: Duration(time.Minute), MinBytesPerSecond: 64 << 10}
}

func (n *HarperNode) setDefaults() {
	n.Role, n.Concurrency, n.MaxRequestsPerSecond = "both", 4, 20
}

func (s *HarperSet) setDefaults() { s.Key, s.Algorithm, s.PageSize = "id", "sha256", 500 }

// harper checks a collection on Harper nodes.
func (v *validator) harper(at string, b Blobs) {
	for _, k := range []struct {
		key string
		set bool
	}{{"uri", b.URI != ""}, {"allow", len(b.Allow) > 0}, {"peers", len(b.Peers) > 0}} {
		if k.set {
			v.fail(at+"."+k.key, "does not go with references.harper: its blobs lie on the nodes, and the nodes are each other's peers")
		}
	}
	if b.Format != "" {
		v.fail(at+".format", "does not go with references.harper: nodes send a blob's bytes, not the file around them")
	}
	at += ".references.harper"
	h := b.References.Harper
	v.word(at+".relation", h.Relation, "replicated", "independent")
	switch h.Repair {
	case "agent", "placement", "rewrite":
		v.fail(at+".repair", "%q is not built in this version: a node can be asked to repair itself (operation); files are not placed and records not rewritten", h.Repair)
	default:
		v.word(at+".repair", h.Repair, "off", "operation")
	}
	if h.Repair == "operation" && h.Relation == "independent" {
		v.fail(at+".repair", "nodes that were filled independently do not repair each other")
	}
	for _, k := range []struct {
		key string
		d   Duration
	}{{"grace", h.Grace}, {"leave_alone", h.LeaveAlone}, {"repair_wait", h.RepairWait}, {"timers.connect", h.Timers.Connect},
		{"timers.first_byte", h.Timers.FirstByte}, {"timers.stall", h.Timers.Stall}, {"timers.total", h.Timers.Total}} {
		if k.d == 0 || k.d == Forever {
			v.fail(at+"."+k.key, "must be above 0s and end")
		}
	}
	v.atLeast(at+".timers.min_bytes_per_second", int64(h.Timers.MinBytesPerSecond), 1)
	v.harperSets(at, h)
	v.harperNodes(at, h)
}

func (v *validator) harperNodes(at string, h *HarperReferences) {
	if len(h.Nodes) == 0 {
		v.fail(at+".nodes", "required: at least one node")
	}
	names, checked := map[string]string{}, false
	for i, n := range h.Nodes {
		at := fmt.Sprintf("%s.nodes[%d]", at, i)
		v.name(at+".name", n.Name, names)
		v.nodeURL(at+".url", n.URL)
		if n.OperationsURL != "" {
			v.nodeURL(at+".operations_url", n.OperationsURL)
		} else if h.Repair == "operation" && n.Role != "donor" {
			v.fail(at+".operations_url", "required by repair: operation")
		}
		if c := n.Credentials.Reveal(); c != "" && !strings.Contains(c, ":") && !strings.HasPrefix(c, "Bearer ") {
			v.fail(at+".credentials", "neither user:password nor Bearer TOKEN")
		}
		v.word(at+".role", n.Role, "check", "donor", "both")
		checked = checked || n.Role != "donor"
		v.atLeast(at+".concurrency", n.Concurrency, 1)
		if n.Concurrency > 256 {
			v.fail(at+".concurrency", "%d is above 256", n.Concurrency)
		}
		if n.MaxRequestsPerSecond <= 0 {
			v.fail(at+".max_requests_per_second", "%g is not above 0", n.MaxRequestsPerSecond)
		}
		if c := n.Control; c != nil && !h.holds(c) {
			v.fail(at+".control", "needs the path and attribute of one of the sets, and the key of a record")
		}
	}
	if len(h.Nodes) > 0 && !checked {
		v.fail(at+".nodes", "all are donors: nothing is looked at")
	}
}

func (v *validator) nodeURL(path, text string) {
	v.httpURL(path, text)
	if strings.ContainsAny(text, "{}?#") {
		v.fail(path, "holds more than a host and a path")
	}
}

// holds reports whether a control is a blob of one of the sets.
func (h *HarperReferences) holds(c *HarperControl) bool {
	for _, s := range h.Sets {
		for _, a := range s.Attributes {
			if s.path() == c.Path && a == c.Attribute && c.Key != "" {
				return true
			}
		}
	}
	return false
}

func (s *HarperSet) path() string {
	if s.Path == "" {
		return s.Table
	}
	return strings.Trim(s.Path, "/")
}

func (v *validator) harperSets(at string, h *HarperReferences) {
	if len(h.Sets) == 0 {
		v.fail(at+".sets", "required: at least one set")
	}
	units, keys := map[string]string{}, map[string]string{}
	for i, s := range h.Sets {
		at := fmt.Sprintf("%s.sets[%d]", at, i)
		for _, k := range [][2]string{{"database", s.Database}, {"table", s.Table}, {"key", s.Key}} {
			if k[1] == "" {
				v.fail(at+"."+k[0], "required")
			}
		}
		if strings.ContainsAny(s.path(), "?#%") {
			v.fail(at+".path", "%q is no path of a REST port", s.Path)
		}
		if first, ok := keys[s.path()]; ok && first != s.Key {
			v.fail(at+".key", "another set of the same path has the key %q", first)
		}
		keys[s.path()] = s.Key
		if len(s.Attributes) == 0 {
			v.fail(at+".attributes", "required: the attributes that hold blobs")
		}
		for j, a := range s.Attributes {
			path := fmt.Sprintf("%s.attributes[%d]", at, j)
			unit := s.path() + "." + a
			switch first, dup := units[unit]; {
			case a == "" || strings.ContainsAny(a, "./,()&%?#"):
				v.fail(path, "%q is no attribute", a)
			case dup:
				v.fail(path, "the same as %s", first)
			default:
				units[unit] = path
			}
		}
		if len(s.Attributes) > 1 && (s.Size != "" || s.Digest != "") {
			v.fail(at, "size and digest belong to one attribute: write a set for each")
		}
		v.word(at+".algorithm", s.Algorithm, "sha256", "md5", "crc32c")
		v.atLeast(at+".page_size", s.PageSize, 1)
		if s.PageSize > 10_000 {
			v.fail(at+".page_size", "%d is above 10000", s.PageSize)
		}
	}
}
