package main

import (
	"bytes"
	"io"
	"sync"
)

// console is stderr with at most one line that is redrawn: logs and errors go
// above it, and it is gone when the work is.
type console struct {
	mu   sync.Mutex
	w    io.Writer
	line []byte
}

var clearLine = []byte("\r\x1b[K")

// Write implements io.Writer for everything but the redrawn line.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.line) == 0 {
		return c.w.Write(p)
	}
	out := bytes.Join([][]byte{clearLine, p}, nil)
	if bytes.HasSuffix(p, []byte("\n")) {
		out = append(out, c.line...)
	}
	if _, err := c.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// draw replaces the redrawn line; empty removes it.
func (c *console) draw(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.line) == 0 && line == "" {
		return
	}
	c.line = []byte(line)
	// A terminal that is gone is no reason to stop looking.
	_, _ = c.w.Write(append(bytes.Clone(clearLine), line...))
}
