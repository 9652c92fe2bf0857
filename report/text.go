package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/rocketkeep/reconcile/reconcile"
)

// TextOptions shape the text for people.
type TextOptions struct {
	// Width of a line in characters; 0 means 80, less than 60 counts as 60. Paths,
	// URIs and commands stand whole on lines of their own and may be longer.
	Width int
	// Color asks for ANSI colours: for a terminal, never for a pipe.
	Color bool
	// Command is how the user called the tool.
	Command Command
	// Verbose lists every finding and every target.
	Verbose bool
	// CanRepair allows to suggest commands that write, CanRestore those that bring
	// objects back.
	CanRepair, CanRestore bool
}

const (
	defaultWidth = 80
	minWidth     = 60
	// Per group, per table and per text: an incident of thousands of findings must
	// still fit a screen or two. What is left out is always counted.
	maxPerGroup = 5
	maxTargets  = 40
	maxBlocks   = 25
)

// Text writes the pass for the person on call: the outcome first, then what is
// wrong and the next command for each group of it, then what was not looked at.
// It prints no control character that a name may hold.
func Text(w io.Writer, pass reconcile.Pass, opts TextOptions) error {
	if opts.Width == 0 {
		opts.Width = defaultWidth
	}
	opts.Width = max(opts.Width, minWidth)
	t := &texter{w: bufio.NewWriter(w), pass: pass, opts: opts,
		adviser: adviser{command: opts.Command, canRepair: opts.CanRepair, canRestore: opts.CanRestore}}
	t.ambiguous = ambiguousNames(pass.Targets)
	blocks := t.blocks()

	t.outcome()
	t.targetTable()
	t.damage(blocks)
	t.repairs()
	t.forOthers()
	t.notChecked()
	t.totals()
	t.pointers(blocks)
	if err := t.w.Flush(); err != nil {
		return fmt.Errorf("write text report: %w", err)
	}
	return nil
}

type texter struct {
	w    *bufio.Writer // remembers the first error until Flush
	pass reconcile.Pass
	opts TextOptions
	adviser
	ambiguous map[string]bool
}

func (t *texter) line(s string) { t.w.WriteString(strings.TrimRight(s, " ") + "\n") }

// para writes wrapped text; the lines after the first get rest as indentation.
func (t *texter) para(text, first, rest string) {
	for _, l := range wrap(text, first, rest, t.opts.Width) {
		t.line(l)
	}
}

// The colours: what is wrong, what is open, what is well.
const (
	red, yellow, green, bold, plain = "\x1b[31m", "\x1b[33m", "\x1b[32m", "\x1b[1m", "\x1b[0m"
)

func (t *texter) paint(color, s string) string {
	if !t.opts.Color || color == "" {
		return s
	}
	return color + s + plain
}

func stateColor(s reconcile.State) string {
	switch s {
	case reconcile.StateClean, reconcile.StateRepaired:
		return green
	case reconcile.StateDiverged, reconcile.StateFailed, reconcile.StateUnreadable, reconcile.StateHalfDeleted, reconcile.StateRolledBack, reconcile.StateRefused:
		return red
	}
	return yellow
}

// ambiguousNames are the target names that stand in more than one store.
func ambiguousNames(targets []reconcile.TargetResult) map[string]bool {
	store, twice := map[string]string{}, map[string]bool{}
	for _, r := range targets {
		if s, ok := store[r.Target]; ok && s != r.Store {
			twice[r.Target] = true
		}
		store[r.Target] = r.Store
	}
	return twice
}

// name is the target as users may type it: with its store only when needed.
func (t *texter) name(store, target string) string {
	if t.ambiguous[target] {
		return printable(store + "/" + target)
	}
	return printable(target)
}
