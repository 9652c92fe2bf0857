package explain

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/fleet"
)

// object is one path of a text, taken apart.
type object struct {
	role   reconcile.Role
	path   string // below the dataset; whole when no dataset is told
	target string
	// root is the URI of the folder that holds the dataset; empty when the text
	// shows only a part of it.
	root string
	// dataset is where the text shows the dataset to be; empty when none is told.
	dataset string
}

var (
	// What engines put a path after. It ends where the sentence goes on.
	phrases = []*regexp.Regexp{
		regexp.MustCompile(`\bNot found: ((?:Wrapped error: |Not found: )*)(.+?)(?:, \S+\.rs:\d+(?::\d+)?|: No such file| Caused by|["')\]}]|$)`),
		regexp.MustCompile(`\bObject at location ()(.+?) not found\b`),
		regexp.MustCompile(`\bDataset at path ()(.+?) was not found\b`),
		regexp.MustCompile(`\bNotFound \{ path:( ?)"([^"]+)"`),
		regexp.MustCompile(`\bbase_path id \d+ not found for data_file ()(\S+)`),
	}
	sourceLine = regexp.MustCompile(`\S+\.rs:\d+(:\d+)?`)
	anyURL     = regexp.MustCompile(`\b[a-z][a-z0-9+.-]*://[^\s"'<>)\]}]+`)
	// A word that holds one of the folders or files of a dataset.
	pathWord = regexp.MustCompile(`[^\s"'<>(){}\[\],]*(?:/|\.lance\b|_versions\b|\.arrow\b|\.blob\b|\.idx\b|\.manifest\b|\.txn\b|\.binpb\b)[^\s"'<>(){}\[\],]*`)
)

// extract finds the paths of a text and gives the text without them. Source
// positions of the engine are no paths.
func extract(text string) (objects []object, rest string) {
	text = sourceLine.ReplaceAllStringFunc(text, func(s string) string {
		return "@.rs:0" // keeps the end of a path recognisable
	})
	var masks [][2]string
	add := func(raw, mask string) {
		raw = strings.TrimRight(raw, ".:;,")
		if o, ok := takeApart(raw); ok {
			objects = append(objects, o)
		}
		masks = append(masks, [2]string{raw, mask})
	}
	for _, re := range phrases {
		for _, m := range re.FindAllStringSubmatch(text, -1) {
			if strings.ContainsAny(m[2], "/._") {
				add(m[2], "PATH")
			}
		}
	}
	for _, u := range anyURL.FindAllString(text, -1) {
		add(u, "URL")
	}
	for _, w := range pathWord.FindAllString(text, -1) {
		if !strings.Contains(w, "@.rs:0") && !strings.Contains(w, "://") {
			add(w, "PATH")
		}
	}
	// The longest first: a path may begin with another one.
	slices.SortStableFunc(masks, func(a, b [2]string) int { return len(b[0]) - len(a[0]) })
	rest = text
	for _, m := range masks {
		rest = strings.ReplaceAll(rest, m[0], m[1])
	}
	return objects, withoutNames(rest, objects)
}

// withoutNames takes the names of targets out of a text, so that a store called
// SlowDown is not taken for what happened to it.
func withoutNames(rest string, objects []object) string {
	var names []string
	for _, o := range objects {
		_, name, _ := strings.Cut(":"+o.target, ":")
		if _, after, kind := strings.Cut(name, ":"); kind {
			name = after
		}
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if m := tableName.FindStringSubmatch(rest); m != nil {
		names = append(names, m[1])
	}
	for _, name := range names {
		rest = regexp.MustCompile(`(^|[^\w.-])`+regexp.QuoteMeta(name)+`($|[^\w-])`).ReplaceAllString(rest, "${1}NAME${2}")
	}
	return rest
}

// choose picks the object that tells most: the last cause that has a role, else
// the last one.
func choose(objects []object) object {
	var best object
	for _, o := range objects {
		if score(o) >= score(best) {
			if best.path == o.path && o.root == "" {
				o.root = best.root
			}
			best = o
		}
	}
	return best
}

func score(o object) int {
	n := 0
	if o.role != reconcile.NoRole {
		n += 4
	}
	if o.target != "" {
		n += 2
	}
	if o.root != "" {
		n++
	}
	return n
}

// takeApart reads one path or URL. ok is false for words that are no object.
func takeApart(raw string) (object, bool) {
	prefix, p := splitURL(raw)
	abs := strings.HasPrefix(p, "/")
	parts := strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
	if len(parts) == 0 {
		return object{}, false
	}
	role, at := roleOf(parts)
	o := object{role: role, path: strings.Join(parts, "/")}
	switch {
	case at >= 0:
		o.path = strings.Join(parts[at:], "/")
	case role != reconcile.NoRole:
		return o, true // told by its own name alone: no dataset is known
	case strings.HasSuffix(parts[len(parts)-1], ".lance"):
		at, o.path = len(parts), "" // the dataset itself
	default:
		return o, false
	}
	// A branch lies at tree/NAME below the dataset that has it.
	set := at
	for i := at - 1; i > 0 && !strings.HasSuffix(parts[at-1], ".lance"); i-- {
		if parts[i] == "tree" && strings.HasSuffix(parts[i-1], ".lance") {
			set, o.path = i, strings.Join(parts[i:], "/")
			break
		}
	}
	if set == 0 || !strings.HasSuffix(parts[set-1], ".lance") {
		return o, true
	}
	o.target, _ = fleet.Name(parts[set-1])
	if slices.Contains(parts[:set], "…") {
		return o, true // where it is, is not told
	}
	o.dataset = prefix + strings.Join(parts[:set], "/")
	if prefix == "" && abs {
		o.dataset = "/" + o.dataset
	}
	switch {
	case prefix != "":
		o.root = prefix + strings.Join(parts[:set-1], "/")
	case abs:
		o.root = "/" + strings.Join(parts[:set-1], "/")
	}
	return o, true
}

// withoutQuery finds the query of a signed address, whose scheme and host an engine may
// have left out, redacted or not. A question mark in a name is followed by no parameter.
var withoutQuery = regexp.MustCompile(`\?(?:[\w.~%+-]+=|…).*$`)

// splitURL separates what a store's URI keeps in front of the path. Of an HTTP
// address only the path is used: whether its first part is the bucket depends on
// the endpoint.
func splitURL(raw string) (prefix, p string) {
	raw = withoutQuery.ReplaceAllString(raw, "")
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return "", raw
	}
	rest, _, _ = strings.Cut(rest, "?")
	if dec, err := url.PathUnescape(rest); err == nil && (strings.HasPrefix(scheme, "http") || scheme == "file") {
		rest = dec
	}
	authority, path, _ := strings.Cut(rest, "/")
	switch scheme {
	case "http", "https":
		return "", path
	case "file":
		return "", "/" + path
	case "abfs", "abfss", "wasb", "wasbs": // the container stands before the @
	default:
		authority = authority[strings.LastIndexByte(authority, '@')+1:] // credentials are nobody's next command
	}
	return scheme + "://" + authority + "/", path
}

var (
	uuidText  = `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`
	dataName  = regexp.MustCompile(`^(?:` + uuidText + `|[01]{24}[0-9a-f]{26})\.lance$`)
	indexName = regexp.MustCompile(`^(?:page_data\.lance|page_lookup\.lance|bitmap_page_lookup\.lance|index\.idx|auxiliary\.idx|(?:part_\w+_)?(?:tokens|docs|invert|metadata)\.lance)$`)
	deletion  = regexp.MustCompile(`^\d+-\d+-\d+\.(?:arrow|bin)$`)
	manifest  = regexp.MustCompile(`^(?:d?\d+\.manifest(?:-.+)?|_latest\.manifest)$`)
)

// roleOf finds what the last parts of a path are to a dataset, and at which part
// the path below the dataset begins; -1 when no dataset is told.
func roleOf(parts []string) (reconcile.Role, int) {
	for i, s := range parts {
		// A generation is a dataset of its own inside; whatever lies there is part of the generation.
		if s == "_mem_wal" {
			return walRole(parts[i+1:]), i
		}
	}
	last := len(parts) - 1
	for i := last; i >= 0; i-- {
		below := last - i // how many names follow
		switch s := parts[i]; {
		case s == "_versions" && below <= 1:
			return reconcile.RoleManifest, i
		case s == "_transactions" && below == 1:
			return reconcile.RoleTransaction, i
		case s == "_deletions" && below == 1:
			return reconcile.RoleDeletion, i
		case s == "_indices" && below >= 1:
			return reconcile.RoleIndex, i
		case s == "_blobs" && below == 1, s == "data" && below == 2 && strings.HasSuffix(parts[last], ".blob"):
			return reconcile.RoleBlobSidecar, i
		case s == "data" && below == 1 && strings.HasSuffix(parts[last], ".lance") && inDataset(parts, i):
			return reconcile.RoleData, i
		}
	}
	// No folder tells: a base path that is no dataset, or an elided path.
	switch name := parts[last]; {
	case manifest.MatchString(name):
		return reconcile.RoleManifest, last
	case deletion.MatchString(name):
		return reconcile.RoleDeletion, last
	case strings.HasSuffix(name, ".txn"):
		return reconcile.RoleTransaction, last
	case indexName.MatchString(name):
		return reconcile.RoleIndex, -1
	case dataName.MatchString(name):
		return reconcile.RoleData, -1
	}
	return reconcile.NoRole, -1
}

// inDataset reports whether data/NAME.lance at part i is a data file, and not a
// dataset NAME.lance in a store root called data.
func inDataset(parts []string, i int) bool {
	if dataName.MatchString(parts[i+1]) {
		return true
	}
	for _, suffix := range []string{".rollout.lance", ".generic.lance", ".datagen.lance"} {
		if strings.HasSuffix(parts[i+1], suffix) {
			return false
		}
	}
	return i > 0 && strings.HasSuffix(parts[i-1], ".lance")
}

func walRole(below []string) reconcile.Role {
	if len(below) >= 2 && below[1] == "manifest" {
		return reconcile.RoleWALManifest
	}
	return reconcile.RoleWALGeneration
}
