package sqlledger

import (
	"encoding"
	"fmt"
	"math"
	"strings"

	"github.com/rocketkeep/reconcile/reconcile"
)

// A column of an INSERT or an upsert, with its value.
type col struct {
	name  string
	value any
}

// insert is the text and the arguments of an INSERT; tail follows the VALUES.
func insert(table string, cols []col, tail string) (string, []any) {
	names, marks, args := make([]string, len(cols)), make([]string, len(cols)), make([]any, len(cols))
	for i, c := range cols {
		names[i], marks[i], args[i] = c.name, fmt.Sprintf("$%d", i+1), c.value
	}
	return "INSERT INTO " + table + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(marks, ", ") + ") " + tail, args
}

// update is the text and the arguments of an UPDATE; the arguments of where, which
// counts from $1, come first.
func update(table string, cols []col, where string, whereArgs ...any) (string, []any) {
	sets, args := make([]string, len(cols)), append([]any{}, whereArgs...)
	for i, c := range cols {
		args = append(args, c.value)
		sets[i] = fmt.Sprintf("%s = $%d", c.name, len(args))
	}
	return "UPDATE " + table + " SET " + strings.Join(sets, ", ") + " WHERE " + where, args
}

// excluded is the SET list of an upsert that takes the new values of columns.
func excluded(names ...string) string {
	sets := make([]string, len(names))
	for i, n := range names {
		sets[i] = n + " = excluded." + n
	}
	return strings.Join(sets, ", ")
}

// text is s as both databases can hold it.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func textPtr(s *string) *string {
	if s == nil {
		return nil
	}
	return reconcile.Ptr(text(*s))
}

// filled is s, NULL when it is empty.
func filled(s string) *string {
	if s == "" {
		return nil
	}
	return reconcile.Ptr(text(s))
}

// list is ss as a list that is never NULL.
func list(ss []string) []string {
	out := make([]string, len(ss))
	for i, s := range ss {
		out[i] = text(s)
	}
	return out
}

// maxErrorText bounds texts of errors; the rest of one is noise.
const maxErrorText = 4096

func errorText(s string) string {
	s = text(s)
	if len(s) > maxErrorText {
		s = strings.ToValidUTF8(s[:maxErrorText], "")
	}
	return s
}

// signed is n as a column holds it: NULL when it does not fit (the version of a
// detached manifest has the highest bit set).
func signed(n *uint64) *int64 {
	if n == nil || *n > math.MaxInt64 {
		return nil
	}
	return reconcile.Ptr(int64(*n))
}

// version is signed with 0 as unknown: versions begin at 1.
func version(n *uint64) *int64 {
	if n == nil || *n == 0 {
		return nil
	}
	return signed(n)
}

func unsigned(n *int64) *uint64 {
	if n == nil || *n < 0 {
		return nil
	}
	return reconcile.Ptr(uint64(*n))
}

func wide(n *int) *int64 {
	if n == nil {
		return nil
	}
	return reconcile.Ptr(int64(*n))
}

// word scans a closed word of the database into an enum.
func word(s string, into encoding.TextUnmarshaler) error {
	if err := into.UnmarshalText([]byte(s)); err != nil {
		return fmt.Errorf("read ledger: %w", err)
	}
	return nil
}

// rank orders the words of a column; values go up.
func rank(column string, values ...string) string {
	var b strings.Builder
	b.WriteString("CASE " + column)
	for i, v := range values {
		fmt.Fprintf(&b, " WHEN '%s' THEN %d", v, i)
	}
	b.WriteString(" END")
	return b.String()
}

func depthRank(column string) string { return rank(column, "head", "footer", "checksum") }

func versionsRank(column string) string { return rank(column, "current", "retained", "all") }
