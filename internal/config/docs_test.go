package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const reference = "../../docs/configuration.md"

// section is the documented keys of one type: the cell of the default by key.
type section struct {
	heading string
	cells   map[string]string
}

// documented reads the tables of the page by the paths in their headings.
func documented(t *testing.T) map[string]*section {
	t.Helper()
	page, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*section{}
	row := regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\|[^|\n]*\\| *([^|\n]*?) *\\|")
	for _, part := range strings.Split("\n"+string(page), "\n## ")[1:] {
		heading, _, _ := strings.Cut(part, "\n")
		s := &section{heading: heading, cells: map[string]string{}}
		for _, m := range row.FindAllStringSubmatch(part, -1) {
			if _, twice := s.cells[m[1]]; twice {
				t.Errorf("%s: %s is told twice", heading, m[1])
			}
			s.cells[m[1]] = m[2]
		}
		if heading == "Top level" {
			out[""] = s
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(heading, -1) {
			out[m[1]] = s
		}
	}
	return out
}

// The page has every key of the types, no other, and the defaults of the program.
func TestTheReferenceOfTheConfigurationHasEveryKeyAndItsDefault(t *testing.T) {
	t.Parallel()
	sections, seen := documented(t), map[reflect.Type]bool{}
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		if seen[v.Type()] {
			return
		}
		seen[v.Type()] = true
		s := sections[path]
		if s == nil {
			t.Errorf("%s has no section `%s`", reference, path)
			return
		}
		for i := range v.NumField() {
			key := v.Type().Field(i).Tag.Get("yaml")
			if key == "" {
				continue
			}
			cell, ok := s.cells[key]
			if !ok {
				t.Errorf("%q lacks the key %s", s.heading, key)
			}
			delete(s.cells, key)
			at, f := join(path, key), v.Field(i)
			if inner, list := elements(f); inner.IsValid() {
				if list {
					at += "[]"
				}
				walk(inner, at)
				continue
			}
			if d := defaultIs(f, cell); d != "" {
				t.Errorf("%s: %s", at, d)
			}
		}
		for key := range s.cells {
			t.Errorf("%q has the key %s, which there is not", s.heading, key)
		}
	}
	walk(reflect.ValueOf(Default()).Elem(), "")
	if len(seen) < 15 {
		t.Errorf("only %d types seen: the test looks at nothing", len(seen))
	}
}

// elements is what a field with keys of its own holds, with its defaults; list says that
// it is a list of them.
func elements(f reflect.Value) (inner reflect.Value, list bool) {
	ty := f.Type()
	if list = ty.Kind() == reflect.Slice; list || ty.Kind() == reflect.Pointer {
		ty = ty.Elem()
	}
	if ty.Kind() != reflect.Struct || !hasKeys(ty) {
		return reflect.Value{}, false
	}
	if ty == f.Type() {
		return f, false
	}
	inner = reflect.New(ty).Elem()
	setDefaults(inner)
	return inner, list
}

// defaultIs compares a field with the default that a page tells: a value between
// backquotes, else words that mean that there is none.
func defaultIs(f reflect.Value, cell string) string {
	value, code := strings.CutPrefix(cell, "`")
	if !code {
		if !f.IsZero() {
			return fmt.Sprintf("the page tells no default (%s), and it is %v", cell, f.Interface())
		}
		return ""
	}
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(strings.TrimSuffix(value, "`")), &n); err != nil {
		return err.Error()
	}
	got := reflect.New(f.Type()).Elem()
	d := &decoder{env: testEnv, lines: map[string]int{}, expanded: map[string]string{}}
	d.value(n.Content[0], "", got, 0)
	if len(d.problems) > 0 {
		return fmt.Sprint(d.problems)
	}
	if !reflect.DeepEqual(got.Interface(), f.Interface()) {
		return fmt.Sprintf("the page tells %v, and the default is %v", got.Interface(), f.Interface())
	}
	return ""
}

// documents are the README and the pages of docs.
func documents(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) < 5 {
		t.Fatalf("documents: %v, %v", files, err)
	}
	out := map[string]string{}
	for _, f := range append(files, "../../README.md") {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(f)] = string(text)
	}
	return out
}

// Every example of the documents is a configuration that the program takes.
func TestTheExamplesOfTheDocumentsParse(t *testing.T) {
	t.Parallel()
	env := func(name string) (string, bool) {
		if strings.HasSuffix(name, "_URL") {
			return "postgres://u:p@h/d", true
		}
		return "user:secret", true
	}
	blocks := 0
	for name, text := range documents(t) {
		for i, block := range strings.Split(text, "\n```yaml\n")[1:] {
			block, _, closed := strings.Cut(block, "\n```")
			if !closed {
				t.Fatalf("%s: block %d does not end", name, i+1)
			}
			blocks++
			if _, err := Parse(fmt.Sprintf("%s, block %d", name, i+1), []byte(block), env); err != nil {
				t.Error(err)
			}
		}
	}
	if blocks < 15 {
		t.Errorf("only %d examples seen: the test looks at nothing", blocks)
	}
}

// S3 takes names of 3 to 63 characters: an example with another fails when it is tried.
func TestTheExamplesOfTheDocumentsNamePossibleBuckets(t *testing.T) {
	t.Parallel()
	bucket := regexp.MustCompile(`s3a?://([A-Za-z0-9._-]*)`)
	possible := regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	for name, text := range documents(t) {
		for _, m := range bucket.FindAllStringSubmatch(text, -1) {
			if m[1] != "" && !possible.MatchString(m[1]) {
				t.Errorf("%s: %s is no name of a bucket", name, m[0])
			}
		}
	}
}
