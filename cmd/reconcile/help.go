package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rocketkeep/reconcile/reconcile"
)

// helpWidth is what fits the narrowest terminals in use.
const helpWidth = 80

// The exit codes that a command can end with stand at the end of its help.
const exitsKey = "exits"

// setExits notes the exit codes of a command for its help.
func setExits(cmd *cobra.Command, codes ...reconcile.ExitCode) {
	words := make([]string, len(codes))
	for i, c := range codes {
		words[i] = fmt.Sprint(int(c))
	}
	cmd.Annotations = map[string]string{exitsKey: strings.Join(words, " ")}
}

// help is what -h prints: what the command is for, its flags, examples, and the
// exit codes that it can end with.
func help(cmd *cobra.Command) string {
	var b strings.Builder
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	wrapText(&b, "", "", text)
	b.WriteString("\nUsage:\n")
	if cmd.HasAvailableSubCommands() {
		if strings.Contains(cmd.Use, " ") { // it does something by itself, too
			fmt.Fprintf(&b, "  %s\n", cmd.UseLine())
		}
		fmt.Fprintf(&b, "  %s COMMAND [flags]\n\nCommands:\n", cmd.CommandPath())
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-9s %s\n", c.Name(), c.Short)
			}
		}
	} else {
		fmt.Fprintf(&b, "  %s\n", cmd.UseLine())
	}
	flagHelp(&b, "Flags", cmd.LocalFlags(), cmd.Parent() == nil)
	flagHelp(&b, "Flags of every command", cmd.InheritedFlags(), true)
	if cmd.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	exits := strings.Fields(cmd.Annotations[exitsKey])
	if len(exits) == 0 {
		return b.String()
	}
	b.WriteString("\nExit codes:\n")
	for _, d := range reconcile.ExitDocs() {
		for _, e := range exits {
			if e == fmt.Sprint(int(d.Code)) {
				wrapText(&b, fmt.Sprintf("  %3d  ", d.Code), strings.Repeat(" ", 7), d.Name+": "+d.Meaning)
			}
		}
	}
	return b.String()
}

// flagHelp lists the flags of a set, each with its words wrapped beside it.
func flagHelp(b *strings.Builder, title string, fs *pflag.FlagSet, withHelp bool) {
	type line struct{ left, right string }
	var lines []line
	width := 0
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" && !withHelp {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		left := "    --" + f.Name
		if f.Shorthand != "" {
			left = "-" + f.Shorthand + ", --" + f.Name
		}
		if _, isBool := f.Value.(interface{ IsBoolFlag() bool }); !isBool {
			left += " " + value
			if d := f.DefValue; d != "" && d != "[]" {
				usage += " (default " + d + ")"
			}
		}
		lines = append(lines, line{left, usage})
		width = max(width, len(left))
	})
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	width = min(width, 34)
	for _, l := range lines {
		left := fmt.Sprintf("  %-*s  ", width, l.left)
		if len(l.left) > width {
			fmt.Fprintf(b, "  %s\n", l.left)
			left = strings.Repeat(" ", width+4)
		}
		wrapText(b, left, strings.Repeat(" ", width+4), l.right)
	}
}

// wrapText writes text behind first, and what does not fit behind next.
func wrapText(b *strings.Builder, first, next, text string) { wrapAt(b, helpWidth, first, next, text) }

// wrapAt is wrapText for lines of a width; a word that is longer stays whole.
func wrapAt(b *strings.Builder, width int, first, next, text string) {
	line := first
	empty := true
	for _, w := range strings.Fields(text) {
		if !empty && len([]rune(line))+1+len([]rune(w)) > width {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line, empty = next, true
		}
		if !empty {
			line += " "
		}
		line += w
		empty = false
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}
