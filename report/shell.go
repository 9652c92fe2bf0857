package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rocketkeep/reconcile/reconcile"
)

// Command is how the user called the tool, so that suggested commands look at the
// same thing in the same way.
type Command struct {
	// Program is the name to call; empty means "reconcile".
	Program string
	// URIs as given.
	URIs []string
	// Flags that shape the look, as given, each one word: "--versions=all". Those
	// that choose targets or the form of the output are left out of suggestions.
	Flags []string
	// RepairFlags shape what a repair may do, as given, each one word
	// ("--max-fragments=3"): commands that plan or repair get them too.
	RepairFlags []string
	// Plan is the plan file that the command has written; empty when it wrote none.
	Plan string
}

// notRepeated are flags of a look that a suggested command decides by itself.
var notRepeated = []string{"output", "report", "target", "exclude", "verbose", "quiet", "progress", "log-format", "log-level"}

// Flags of a look and of a repair that only some commands know or need.
var (
	// A plan says by itself how widely and how deeply to look, and what to drop.
	notOfApply = []string{"versions", "depth", "deletion-files"}
	// A probe looks at no target.
	notOfProbe = []string{"versions", "depth", "confirm-after", "min-manifest-age", "concurrency", "database"}
)

// leastConfirmAfter is how far apart the looks must be that a repair rests on.
const leastConfirmAfter = time.Second

// line is the command as a line for a POSIX shell. extra flags ("--depth=footer")
// win over the given ones.
func (c Command) line(verb string, s subject, extra ...string) string {
	var what []string
	if verb == "repair" && s.target != "" && (s.kind == "blobs" || s.uri == "") {
		what = append(what, s.target) // takes exactly one word, a name or a place
	} else if verb == "repair" {
		what = append(what, s.uri)
	} else if s.kind == "blobs" || s.uri == "" || s.registry != "" && s.registry != reconcile.RegistryOK {
		// A collection is known by its name only, and only a configured store has a
		// registry to be held against: the configuration tells the rest.
		what = append(what, c.URIs...)
		if s.target != "" {
			what = append(what, "--target="+globQuote(s.target))
		}
	} else {
		what = append(what, s.uri)
	}
	return c.words(verb, what, extra...)
}

// words is a command about what is named, with those of the given flags that it needs.
func (c Command) words(verb string, what []string, extra ...string) string {
	skip := slices.Clone(notRepeated)
	for _, e := range extra {
		skip = append(skip, flagName(e))
	}
	flags, repairs := c.Flags, verb != "check" && verb != "probe"
	switch verb {
	case "apply":
		skip = append(skip, notOfApply...)
	case "probe":
		skip = append(skip, notOfProbe...)
	}
	if repairs {
		flags = slices.Concat(c.Flags, c.RepairFlags)
	}
	words := append([]string{c.program(), verb}, what...)
	for _, f := range flags {
		if slices.Contains(skip, flagName(f)) {
			continue
		}
		if d, err := time.ParseDuration(c.value("confirm-after")); repairs && flagName(f) == "confirm-after" && err == nil && d < leastConfirmAfter {
			f = "--confirm-after=" + leastConfirmAfter.String() // a look may be nearer, a repair refuses it
		}
		words = append(words, f)
	}
	return ShellLine(append(words, extra...)...)
}

// planFile is where a plan is written to, or was.
func (c Command) planFile() string {
	if c.Plan == "" {
		return "plan.json"
	}
	return c.Plan
}

// newPlanFile is where a further plan goes: one that was written and not carried out yet
// is not lost by it.
func (c Command) newPlanFile() string {
	if c.Plan == "" {
		return c.planFile()
	}
	return strings.TrimSuffix(c.Plan, ".json") + "-again.json"
}

// Check is the line that looks at a place as the given flags do.
func (c Command) Check(place string) string { return c.words("check", []string{place}) }

// value of a flag as given; empty when it was not.
func (c Command) value(name string) string {
	v := ""
	for _, f := range c.Flags {
		if flagName(f) == name {
			_, v, _ = strings.Cut(f, "=")
		}
	}
	return v
}

// laterLook is long enough for an outage or a delete to show what it is.
const laterLook = 5 * time.Minute

// later asks for a second look later than the first, unless the user already did.
func (c Command) later() []string {
	if v := c.value("confirm-after"); v != "" {
		// What is not Go's ("1d") is days or forever.
		if d, err := time.ParseDuration(v); err != nil || d >= laterLook {
			return nil
		}
	}
	return []string{"--confirm-after=5m"}
}

// fewer asks for at most n requests at once, and for fewer than the user did.
func (c Command) fewer(n int) string {
	if given, err := strconv.Atoi(c.value("concurrency")); err == nil && given <= n {
		n = max(given/2, 1)
	}
	return "--concurrency=" + strconv.Itoa(n)
}

func (c Command) program() string {
	if c.Program == "" {
		return "reconcile"
	}
	return c.Program
}

func flagName(f string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(f, "-"), "=")
	return name
}

// globQuote makes a pattern (as of path.Match) that matches exactly s.
func globQuote(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// ShellLine quotes words for a POSIX shell and joins them.
func ShellLine(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = ShellQuote(w)
	}
	return strings.Join(quoted, " ")
}

// ShellQuote is one word as a POSIX shell reads it back, with nothing in it that a
// terminal would act on.
func ShellQuote(w string) string {
	plain := w != ""
	for _, r := range w {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_@%+=:,./-", r)) {
			plain = false
		}
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ansiQuote(w)
		}
	}
	if plain {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}

// ansiQuote is $'…' (bash, zsh, ksh and POSIX 2024), the one form that can hold
// bytes that a terminal would act on.
func ansiQuote(w string) string {
	var b strings.Builder
	b.WriteString("$'")
	for i := 0; i < len(w); i++ {
		switch c := w[i]; {
		case c == '\'' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c >= 0x20 && c < 0x7f:
			b.WriteByte(c)
		default:
			// Three octal digits always end the escape; \x takes as many as follow.
			fmt.Fprintf(&b, `\%03o`, c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
