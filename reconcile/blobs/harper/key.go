package harper

import (
	"fmt"
	"io/fs"
	"net/url"
	"strings"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Scheme of the locations of this package.
const Scheme = "harper"

// EncodeKey is a record's key as it stands in locations and requests: everything but
// letters, digits, "-", "_" and "~" percent-encoded. Dots too: in a request the last one
// begins the attribute.
func EncodeKey(key string) string {
	const hexdigits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(key) {
		switch c := key[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '~':
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hexdigits[c>>4])
			b.WriteByte(hexdigits[c&15])
		}
	}
	return b.String()
}

// unit is one blob of one node, or a record of it when it has no attribute.
type unit struct {
	node *node
	set  *Set // nil: none of ours
	path string
	name string // the key, encoded
	attr string
}

// target is the path and query of a request for it.
func (u unit) target() string {
	if u.attr == "" {
		return u.path + "/" + u.name
	}
	return u.path + "/" + u.name + "." + u.attr
}

// record is the record that a blob belongs to.
func (u unit) record() unit {
	u.attr = ""
	return u
}

// location is where a unit is as an object.
func (c *Cluster) location(u unit) objstore.Location {
	return objstore.Location{Scheme: Scheme, Endpoint: c.cfg.Name, Bucket: u.node.cfg.Name, Key: u.target()}
}

// Locate reads harper://NODE/PATH/KEY.ATTRIBUTE. It touches no network; an error matches
// fs.ErrInvalid.
func (c *Cluster) Locate(uri string) (objstore.Location, error) {
	rest, ok := strings.CutPrefix(uri, Scheme+"://")
	node, key, _ := strings.Cut(rest, "/")
	loc := objstore.Location{Scheme: Scheme, Endpoint: c.cfg.Name, Bucket: node, Key: key}
	if !ok {
		return objstore.Location{}, fmt.Errorf("not a %s:// location: %w", Scheme, fs.ErrInvalid)
	}
	if _, err := c.unit(loc); err != nil {
		return objstore.Location{}, err
	}
	return loc, nil
}

// unit resolves a location. A name that ends in no attribute of a set is a record's, so
// that a name made up by somebody asks the node an honest question.
func (c *Cluster) unit(loc objstore.Location) (unit, error) {
	bad := func(why string) (unit, error) {
		return unit{}, fmt.Errorf("%s: %s: %w", loc, why, fs.ErrInvalid)
	}
	n := c.nodes[loc.Bucket]
	i := strings.LastIndexByte(loc.Key, '/')
	switch {
	case loc.Scheme != Scheme || loc.Endpoint != c.cfg.Name || n == nil:
		return bad("no node of this collection")
	case i < 0:
		return bad("names no table")
	}
	u := unit{node: n, path: loc.Key[:i]}
	if c.groups[u.path] == nil {
		return bad("no table of this collection")
	}
	name := loc.Key[i+1:]
	if j := strings.LastIndexByte(name, '.'); j > 0 {
		if s := c.groups[u.path].sets[name[j+1:]]; s != nil {
			key, err := url.PathUnescape(name[:j])
			if err != nil || EncodeKey(key) != name[:j] {
				return bad("its key is not encoded as a key is")
			}
			u.set, u.name, u.attr = s, name[:j], name[j+1:]
			return u, nil
		}
	}
	u.name = EncodeKey(name)
	return u, nil
}
