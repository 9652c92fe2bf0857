package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/explain"
)

var wideRows = [][]string{
	{"3f9a17c0", "exp-1", "missing", "at s3://attachments-eu/ https://b.internal/blobs/", "data/0101010101010101010101010101010101010101.lance"},
	{"77", "exp-22", "lost", "-", "data/a  b c.lance"},
}

const wideHead = "FINDING TARGET VERDICT COPIES PATH"

func TestTablesFitTheTerminal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		width int
		want  string
	}{
		{"all columns side by side where they fit", 140, `
FINDING   TARGET  VERDICT  COPIES                                             PATH
3f9a17c0  exp-1   missing  at s3://attachments-eu/ https://b.internal/blobs/  data/0101010101010101010101010101010101010101.lance
77        exp-22  lost     -                                                  data/a  b c.lance
`},
		{"the last below each row where they do not", 80, `
FINDING   TARGET  VERDICT  COPIES
3f9a17c0  exp-1   missing  at s3://attachments-eu/ https://b.internal/blobs/
    path  data/0101010101010101010101010101010101010101.lance
77        exp-22  lost     -
    path  data/a  b c.lance
`},
		{"words are never broken, and what is not known takes no line", 40, `
FINDING   TARGET  VERDICT
3f9a17c0  exp-1   missing
    copies  at s3://attachments-eu/
            https://b.internal/blobs/
    path    data/0101010101010101010101010101010101010101.lance
77        exp-22  lost
    path    data/a  b c.lance
`},
		{"one column stands in any case", 5, `
FINDING
3f9a17c0
    target   exp-1
    verdict  missing
    copies   at
             s3://attachments-eu/
             https://b.internal/blobs/
    path     data/0101010101010101010101010101010101010101.lance
77
    target   exp-22
    verdict  lost
    path     data/a  b c.lance
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			if err := fold(&b, tt.width, strings.Fields(wideHead), wideRows); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want[1:], b.String()); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// A pipe gets a line a row, whatever its length: scripts read it.
func TestAPipeGetsALineARow(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	long := strings.Repeat("x ", 500)
	if err := columns(&b, "A B", [][]string{{"1", long}, {"", "\x1b[2J"}}); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "A  B\n1  "+long+"\n-  "+printable("\x1b[2J")+"\n"; got != want {
		t.Errorf("%q", got)
	}
	b.Reset()
	a := &app{stdout: &b}
	if err := a.printExplanation(explain.Explanation{Words: long, Damage: explain.DamageMissing, Path: long, NextCommand: "x"}, "text"); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n != 6 || !strings.Contains(b.String(), long) {
		t.Errorf("%d lines:\n%s", n, b.String())
	}
}

func TestExplanationsAreBrokenForATerminal(t *testing.T) {
	t.Parallel()
	got := explanation(explain.Explanation{Words: "A data file is gone. Scans and compaction of that table fail; counts go on.", Damage: explain.DamageMissing, Target: "x",
		Path: "data/01010101010101010101010101010101010101010101.lance", NextCommand: "reconcile check URI --target x --versions retained"}, 40)
	want := `
A data file is gone. Scans and
compaction of that table fail; counts go
on.

damage  missing
target  x
path    data/01010101010101010101010101010101010101010101.lance

Next: reconcile check URI --target x --versions retained
      (URI is the folder or bucket
      prefix that holds the table; the
      text does not show it)
`
	if d := cmp.Diff(want[1:], got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}
