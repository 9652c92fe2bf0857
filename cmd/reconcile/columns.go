package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// columns prints rows below their headings, aligned. On a terminal that is too narrow
// for them the last columns stand below each row, one a line; what goes into a pipe is a
// line a row, however long.
func columns(w io.Writer, head string, rows [][]string) error {
	for _, r := range rows {
		for i := range r {
			r[i] = cmp.Or(printable(r[i]), "-")
		}
	}
	width, tty := terminal(w)
	if tty {
		return fold(w, width, strings.Fields(head), rows)
	}
	return align(w, strings.Fields(head), rows, nil)
}

// align prints rows as a table; below says what else to print after each row.
func align(w io.Writer, head []string, rows [][]string, below func(i int) string) error {
	var table strings.Builder
	t := tabwriter.NewWriter(&table, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(head, "\t"))
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r[:len(head)], "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	var b strings.Builder
	i := -1 // the heading
	for line := range strings.Lines(table.String()) {
		b.WriteString(line)
		if i >= 0 && below != nil {
			b.WriteString(below(i))
		}
		i++
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// prose are the columns that hold words rather than a name.
var prose = []string{"COPIES", "DETAIL", "ERROR", "OUTCOME"}

// fold prints as many columns side by side as fit into the width, and the others below
// each row. There prose is broken at spaces; a name stays whole, so that it can be copied.
func fold(w io.Writer, width int, head []string, rows [][]string) error {
	const gap = 2
	fit, used := 0, 0
	for i, h := range head {
		widest := utf8.RuneCountInString(h)
		for _, r := range rows {
			widest = max(widest, utf8.RuneCountInString(r[i]))
		}
		if used += widest; used > width && i > 0 {
			break
		}
		used += gap
		fit = i + 1
	}
	label := 0
	for _, h := range head[fit:] {
		label = max(label, len(h))
	}
	return align(w, head[:fit], rows, func(i int) string {
		var b strings.Builder
		for j := fit; j < len(head); j++ {
			if rows[i][j] == "-" {
				continue
			}
			first := fmt.Sprintf("    %-*s  ", label, strings.ToLower(head[j]))
			if slices.Contains(prose, head[j]) {
				wrapAt(&b, width, first, strings.Repeat(" ", len(first)), rows[i][j])
			} else {
				b.WriteString(first + rows[i][j] + "\n")
			}
		}
		return b.String()
	})
}
