package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// EnvFile names the variable that holds the path of the configuration.
const EnvFile = "RECONCILE_CONFIG"

// DefaultFile is read when neither a flag nor the variable names a file.
const DefaultFile = "reconcile.yaml"

// maxFile bounds what is read: a configuration of thousands of stores fits, a
// data file given by mistake does not.
const maxFile = 4 << 20

// Problem is one mistake of a configuration.
type Problem struct {
	// Line counts from 1; 0 when the mistake has no line.
	Line int
	// Path of the key ("stores[0].uri"); empty for the file as a whole.
	Path string
	Text string
}

// Error holds every mistake of one file, in the order of their lines.
type Error struct {
	File     string
	Problems []Problem
}

// Error implements error, one line per mistake: FILE:LINE: PATH: TEXT.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		var b strings.Builder
		b.WriteString(e.File)
		if p.Line > 0 {
			b.WriteString(":" + strconv.Itoa(p.Line))
		}
		b.WriteString(": ")
		if p.Path != "" {
			b.WriteString(p.Path + ": ")
		}
		b.WriteString(p.Text)
		lines[i] = b.String()
	}
	return strings.Join(lines, "\n")
}

// Find tells which file applies: the flag's, else $RECONCILE_CONFIG, else
// ./reconcile.yaml if there is one, else none (""). It looks at the disk for the
// last only; a file that is named and absent is Load's error.
func Find(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	if f := os.Getenv(EnvFile); f != "" {
		return f, nil
	}
	switch _, err := os.Stat(DefaultFile); {
	case err == nil:
		return DefaultFile, nil
	case errors.Is(err, os.ErrNotExist):
		return "", nil
	default:
		return "", fmt.Errorf("look for a configuration: %w", err)
	}
}

// Load reads and validates one file with the process's environment. Mistakes in
// the file are an [*Error].
func Load(file string) (*Config, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if len(data) > maxFile {
		return nil, &Error{File: file, Problems: []Problem{{Text: "larger than 4 MiB: this is no configuration"}}}
	}
	return Parse(file, data, lookupEnv)
}

// Parse reads and validates the text of a configuration. name stands in
// messages, env answers for ${NAME}. Mistakes are an [*Error].
func Parse(name string, data []byte, env func(string) (string, bool)) (*Config, error) {
	c := Default()
	d := &decoder{env: env, lines: map[string]int{}, expanded: map[string]string{}}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF): // an empty file is all defaults
	case err != nil:
		d.problems = append(d.problems, syntaxProblem(err))
	default:
		if len(doc.Content) > 0 {
			d.value(doc.Content[0], "", reflect.ValueOf(c).Elem(), 0)
		}
		if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
			d.fail(second.Line, "", "holds more than one document")
		}
	}
	// A key that could not be read holds its default, so that the checks that
	// follow speak of other keys only.
	d.problems = append(d.problems, validate(c, d.lines, d.problems)...)
	for i := range d.problems {
		d.problems[i].Text = d.hide(d.problems[i].Text)
	}
	if len(d.problems) == 0 {
		return c, nil
	}
	slices.SortStableFunc(d.problems, func(a, b Problem) int { return a.Line - b.Line })
	return nil, &Error{File: name, Problems: d.problems}
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

func syntaxProblem(err error) Problem {
	p := Problem{Text: err.Error()}
	if m := yamlLine.FindStringSubmatch(p.Text); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		p.Text = "not YAML: " + m[2]
	}
	return p
}
