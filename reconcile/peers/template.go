package peers

import (
	"errors"
	"net/url"
	"strings"
)

// keyMark stands in a template where the object's name goes.
const keyMark = "{key}"

// template is an address with a gap, both sides as they go over the wire. Whatever
// fills the gap, scheme, host and the folder before the gap stay as they are.
type template struct {
	scheme, host string
	// path and query, one of them in two parts around the gap.
	path, query       string
	pathEnd, queryEnd string
	inQuery           bool
}

// parseTemplate reads "https://host/prefix/{key}". The gap is in the path or in the
// query, and there is one. Errors do not hold the text: it may hold a password.
func parseTemplate(text string) (template, error) {
	if strings.Count(text, keyMark) != 1 {
		return template{}, invalid("the url of a peer must hold " + keyMark + " exactly once")
	}
	// A word that no escaping changes, so that both sides keep their spelling.
	mark := "key0"
	for strings.Contains(text, mark) {
		mark += "0"
	}
	u, err := url.Parse(strings.Replace(text, keyMark, mark, 1))
	switch {
	case err != nil:
		return template{}, invalid("the url of a peer is no URL")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "":
		return template{}, invalid("the url of a peer must begin with http://host or https://host")
	case u.User != nil:
		return template{}, invalid("the url of a peer holds credentials; they belong in a header")
	case u.Fragment != "" || strings.Contains(text, "#"):
		return template{}, invalid("the url of a peer has a fragment, which no server is sent")
	case strings.Contains(u.Host, mark):
		return template{}, invalid(keyMark + " must stand in the path or the query of a peer's url")
	case u.RawPath != "" && u.RawPath != u.EscapedPath():
		return template{}, invalid("the path of a peer's url holds what must be percent-encoded")
	case strings.ContainsFunc(u.RawQuery, func(c rune) bool { return c <= ' ' || c >= 0x7f }):
		return template{}, invalid("the query of a peer's url holds what must be percent-encoded")
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	for seg := range strings.SplitSeq(path, "/") {
		if dots, _ := url.PathUnescape(seg); dots == "." || dots == ".." {
			return template{}, invalid("the path of a peer's url has a part . or ..")
		}
	}
	t := template{scheme: u.Scheme, host: strings.ToLower(u.Host)}
	t.path, t.pathEnd, _ = strings.Cut(path, mark)
	t.query, t.queryEnd, t.inQuery = strings.Cut(u.RawQuery, mark)
	return t, nil
}

// name is scheme, host and the path before the gap.
func (t template) name() string { return t.scheme + "://" + t.host + strings.TrimRight(t.path, "/") }

// errClimbs: the address would lead out of the template's folder at a server that
// resolves "..", encoded or not, before it looks for the object.
var errClimbs = errors.New("the name leads out of the template's folder")

// url is the address of a name. The name's bytes are exact: a server that decodes the
// path once, or the query, gets them back.
func (t template) url(name string) (*url.URL, error) {
	enc := escape(name)
	u := &url.URL{Scheme: t.scheme, Host: t.host, RawPath: t.path, RawQuery: t.query}
	if t.inQuery {
		u.RawQuery += enc + t.queryEnd
	} else {
		folder := strings.LastIndexByte(t.path, '/') + 1
		if climbs(t.path[folder:] + enc + t.pathEnd) {
			return nil, errClimbs
		}
		u.RawPath += enc + t.pathEnd
	}
	var err error
	if u.Path, err = url.PathUnescape(u.RawPath); err != nil || u.EscapedPath() != u.RawPath {
		return nil, errors.New("the address cannot be written as a URL")
	}
	return u, nil
}

// escape percent-encodes a name for a path or a query: slashes stay, everything but
// unreserved characters goes (RFC 3986 §2.3), and so do the dots of parts that are "."
// or "..", which clients and servers would resolve.
func escape(name string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i, part := range strings.Split(name, "/") {
		if i > 0 {
			b.WriteByte('/')
		}
		dots := part == "." || part == ".."
		for j := range len(part) {
			c := part[j]
			if unreserved(c) && !dots {
				b.WriteByte(c)
				continue
			}
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

// climbs reports whether an escaped path, resolved as the most eager server would
// (decoded first, backslashes as slashes, empty parts left out), rises above where it
// begins.
func climbs(escaped string) bool {
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		return true
	}
	depth := 0
	for part := range strings.SplitSeq(strings.ReplaceAll(plain, `\`, "/"), "/") {
		switch part {
		case "", ".":
		case "..":
			if depth--; depth < 0 {
				return true
			}
		default:
			depth++
		}
	}
	return false
}
