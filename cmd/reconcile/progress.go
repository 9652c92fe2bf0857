package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/rocketkeep/reconcile/reconcile/pass"
)

// How often progress is shown: a redrawn line as fast as an eye follows, lines
// that stay rarely enough not to fill a log.
const (
	redrawEvery = 100 * time.Millisecond
	lineEvery   = 10 * time.Second
)

// progress shows a running pass on stderr. A nil *progress shows nothing.
type progress struct {
	console  *console
	redraw   bool
	width    int
	now      func() time.Time
	interval time.Duration

	mu    sync.Mutex
	last  time.Time
	phase string
	// wait is the moment that the countdown shows; nil outside of it.
	wait *pass.Progress
}

// newProgress decides by the flag's word and by what stderr is.
func newProgress(word string, quiet bool, c *console, stderr io.Writer) *progress {
	width, tty := terminal(stderr)
	if word == "never" || quiet || word == "auto" && !tty {
		return nil
	}
	p := &progress{console: c, redraw: tty, width: width, now: time.Now, interval: lineEvery}
	if tty {
		p.interval = redrawEvery
	}
	return p
}

// terminal reports whether w is a terminal that can redraw a line, and its width.
func terminal(w io.Writer) (width int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return 0, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width < 20 {
		width = 80
	}
	return width, true
}

// show takes a moment of the pass. Most moments are dropped; a new phase is shown
// at once.
func (p *progress) show(m pass.Progress) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if m.Phase == p.phase && now.Sub(p.last) < p.interval {
		return
	}
	p.last, p.phase, p.wait = now, m.Phase, nil
	if m.Phase == "wait" && p.redraw {
		p.wait = &m
		time.AfterFunc(time.Second, p.countDown)
	}
	p.print(progressLine(m, now))
}

// countDown redraws the wait, of which the pass itself says nothing more.
func (p *progress) countDown() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wait != nil {
		p.print(progressLine(*p.wait, p.now()))
		time.AfterFunc(time.Second, p.countDown)
	}
}

func (p *progress) print(line string) {
	if !p.redraw {
		fmt.Fprintln(p.console, line)
		return
	}
	if r := []rune(line); len(r) >= p.width {
		line = string(r[:p.width-1])
	}
	p.console.draw(line)
}

// done removes the redrawn line.
func (p *progress) done() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wait = nil
	if p.redraw {
		p.console.draw("")
	}
}

func progressLine(m pass.Progress, now time.Time) string {
	var b strings.Builder
	switch m.Phase {
	case "wait":
		left := max(m.WaitUntil.Sub(now), 0).Round(time.Second)
		fmt.Fprintf(&b, "waiting %s before the second look at %s", left, count(int(m.SuspectsNow), "object"))
	case "confirm":
		fmt.Fprintf(&b, "second look at %s", count(int(m.SuspectsNow), "object"))
	case "plan":
		b.WriteString("working out what could be done")
	default:
		fmt.Fprintf(&b, "looking: %d of %d targets, %d references checked", m.TargetsDone, m.Targets, m.Checked)
		if m.SuspectsNow > 0 {
			fmt.Fprintf(&b, ", %d suspect", m.SuspectsNow)
		}
	}
	return b.String()
}
