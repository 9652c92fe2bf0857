package config

import (
	"encoding"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rocketkeep/reconcile/reconcile"
)

// textSetter is what single values of their own notation implement.
type textSetter interface{ setText(string) error }

// maxNesting bounds aliases that contain themselves, maxNodes aliases that
// multiply: a few hundred bytes of them can stand for billions of values.
const (
	maxNesting = 32
	maxNodes   = 1 << 17
)

// decoder fills a Config from YAML nodes and collects what is wrong.
type decoder struct {
	env      func(string) (string, bool)
	lines    map[string]int    // by path of the key
	expanded map[string]string // "${NAME}" by its value
	nodes    int
	stopped  bool
	problems []Problem
}

// enough reports whether to stop descending for good; why is reported once.
func (d *decoder) enough(n *yaml.Node, path string, depth int) bool {
	d.nodes++
	if !d.stopped && (depth > maxNesting || d.nodes > maxNodes) {
		d.stopped = true
		d.fail(n.Line, path, "nested too deeply, or too many values through aliases")
	}
	return d.stopped
}

func (d *decoder) fail(line int, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{Line: line, Path: path, Text: fmt.Sprintf(format, args...)})
}

// value decodes n into v, which is settable.
func (d *decoder) value(n *yaml.Node, path string, v reflect.Value, depth int) {
	if d.enough(n, path, depth) {
		return
	}
	if n.Kind == yaml.AliasNode {
		d.value(n.Alias, path, v, depth+1)
		return
	}
	if _, seen := d.lines[path]; !seen {
		d.lines[path] = n.Line
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // "key:" without a value keeps the default
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		setDefaults(v.Elem())
		d.value(n, path, v.Elem(), depth+1)
		return
	}
	switch x := v.Addr().Interface().(type) {
	case textSetter:
		if n.Kind == yaml.ScalarNode || !hasKeys(v.Type()) {
			d.scalar(n, path, v, x.setText)
			return
		}
	case encoding.TextUnmarshaler:
		d.scalar(n, path, v, func(s string) error {
			if err := x.UnmarshalText([]byte(s)); err != nil {
				return fmt.Errorf("%w; it is one of %s", err, wordsOf(x))
			}
			return nil
		})
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.mapping(n, path, v, depth)
	case reflect.Slice:
		d.sequence(n, path, v, depth)
	case reflect.Map:
		d.stringMap(n, path, v, depth)
	default:
		d.scalar(n, path, v, func(s string) error { return setBasic(v, n, s) })
	}
}

func setDefaults(v reflect.Value) {
	if x, ok := v.Addr().Interface().(defaulter); ok {
		x.setDefaults()
	}
}

// hasKeys reports whether a struct type has YAML keys, that is, can be a mapping.
func hasKeys(t reflect.Type) bool {
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("yaml") != "" {
			return true
		}
	}
	return false
}

func (d *decoder) scalar(n *yaml.Node, path string, v reflect.Value, set func(string) error) {
	if n.Kind != yaml.ScalarNode {
		d.fail(n.Line, path, "must be one value, not %s", kindName(n))
		return
	}
	s, ok := d.expand(n, path)
	if !ok {
		return
	}
	if err := set(s); err != nil {
		text := err.Error()
		if s != n.Value {
			// What came from the environment may be a secret: the variable is named, not its content.
			text = fmt.Sprintf("the value of %s is not valid here", n.Value)
		}
		d.fail(n.Line, path, "%s", text)
	}
}

func setBasic(v reflect.Value, n *yaml.Node, s string) error {
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Bool:
		switch s {
		case "true", "false":
			v.SetBool(s == "true")
		default:
			return fmt.Errorf("%q is not true or false", s)
		}
	case reflect.Int64:
		i, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", s)
		}
		v.SetInt(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
		if err != nil || f != f {
			return fmt.Errorf("%q is not a number", s)
		}
		v.SetFloat(f)
	default:
		return fmt.Errorf("the program cannot decode a %s (line %d)", v.Kind(), n.Line)
	}
	return nil
}

func (d *decoder) mapping(n *yaml.Node, path string, v reflect.Value, depth int) {
	if n.Kind != yaml.MappingNode {
		d.fail(n.Line, path, "must be a mapping of keys, not %s", kindName(n))
		return
	}
	fields := make(map[string]int, v.NumField())
	known := make([]string, 0, v.NumField())
	for i := range v.NumField() {
		if key := v.Type().Field(i).Tag.Get("yaml"); key != "" {
			fields[key] = i
			known = append(known, key)
		}
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, val := n.Content[i], n.Content[i+1]
		if k.Tag == "!!merge" { // shared settings through an anchor; own keys win, so they come later
			if i != 0 {
				d.fail(k.Line, join(path, "<<"), "must be the first key of its mapping")
				continue
			}
			d.value(val, path, v, depth+1)
			continue
		}
		at := join(path, k.Value)
		if line, dup := seen[k.Value]; dup {
			d.fail(k.Line, at, "given twice (first on line %d)", line)
			continue
		}
		seen[k.Value] = k.Line
		f, ok := fields[k.Value]
		if !ok {
			d.fail(k.Line, at, "unknown key%s", didYouMean(k.Value, known))
			continue
		}
		d.lines[at] = k.Line
		d.value(val, at, v.Field(f), depth+1)
	}
}

func (d *decoder) sequence(n *yaml.Node, path string, v reflect.Value, depth int) {
	if n.Kind != yaml.SequenceNode {
		d.fail(n.Line, path, "must be a list, not %s", kindName(n))
		return
	}
	s := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		setDefaults(s.Index(i))
		d.value(item, fmt.Sprintf("%s[%d]", path, i), s.Index(i), depth+1)
	}
	v.Set(s)
}

func (d *decoder) stringMap(n *yaml.Node, path string, v reflect.Value, depth int) {
	if n.Kind != yaml.MappingNode {
		d.fail(n.Line, path, "must be a mapping of names to values, not %s", kindName(n))
		return
	}
	m := reflect.MakeMap(v.Type())
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		at := join(path, k.Value)
		key := reflect.ValueOf(k.Value)
		if m.MapIndex(key).IsValid() {
			d.fail(k.Line, at, "given twice")
			continue
		}
		e := reflect.New(v.Type().Elem()).Elem()
		d.value(n.Content[i+1], at, e, depth+1)
		m.SetMapIndex(key, e)
	}
	v.Set(m)
}

var variable = regexp.MustCompile(`\$\$|\$\{[^}]*\}?`)
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces ${NAME} and $$ in a scalar; ok is false when a variable is
// unset or the notation is wrong, which is then reported.
func (d *decoder) expand(n *yaml.Node, path string) (s string, ok bool) {
	ok = true
	s = variable.ReplaceAllStringFunc(n.Value, func(m string) string {
		if m == "$$" {
			return "$"
		}
		name, closed := strings.CutSuffix(strings.TrimPrefix(m, "${"), "}")
		if !closed || !variableName.MatchString(name) {
			d.fail(n.Line, path, "%q is not ${NAME}; $$ is one dollar sign", m)
			ok = false
			return ""
		}
		v, set := d.env(name)
		if !set {
			d.fail(n.Line, path, "the environment variable %s is not set", name)
			ok = false
		}
		if len(v) >= shortestSecret {
			d.expanded[v] = m
		}
		return v
	})
	return s, ok
}

// shortestSecret: hiding shorter values would garble texts and hide nothing.
const shortestSecret = 4

// hide takes what came out of the environment out of a text again: it may be a
// secret, wherever in the file it stands.
func (d *decoder) hide(text string) string {
	for value, name := range d.expanded {
		quoted := strings.Trim(strconv.Quote(value), `"`)
		text = strings.ReplaceAll(strings.ReplaceAll(text, quoted, name), value, name)
	}
	return text
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	default:
		return "a single value"
	}
}

// wordsOf lists what a closed word of package reconcile can be.
func wordsOf(x any) string {
	switch x.(type) {
	case *reconcile.Depth:
		return "head, footer, checksum"
	case *reconcile.Versions:
		return "current, retained, all"
	}
	return fmt.Sprintf("the words of %T", x)
}

// didYouMean lists the known keys, after the one that a typing mistake is near to: two
// letters differ at most, and fewer than half of them.
func didYouMean(key string, known []string) string {
	sort.Strings(known)
	best, at := 3, ""
	for _, k := range known {
		if n := editDistance(key, k); n < best && 2*n < max(len(key), len(k)) {
			best, at = n, k
		}
	}
	all := "known here: " + strings.Join(known, ", ")
	if at != "" {
		return "; did you mean " + at + "? (" + all + ")"
	}
	return "; " + all
}

func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		prev := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := prev
			if a[i] != b[j] {
				cost++
			}
			prev = row[j+1]
			row[j+1] = min(cost, row[j]+1, prev+1)
		}
	}
	return row[len(b)]
}

// lookupEnv is the process's environment.
func lookupEnv(name string) (string, bool) { return os.LookupEnv(name) }
