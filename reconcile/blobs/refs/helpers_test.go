package refs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/memstore"
	"github.com/rocketkeep/reconcile/internal/servertest"
)

func TestMain(m *testing.M) {
	defer servertest.StopPostgres()
	m.Run()
}

var refsAt = objstore.Location{Scheme: "s3", Bucket: "ops", Key: "refs"}

// all are the columns that tests name as the configuration's example does.
var all = Columns{Key: "key", Size: "size", Checksum: "checksum", Record: "record_id"}

// stored is a store with one object.
func stored(data string) *memstore.Store {
	s := memstore.New(memstore.Options{})
	s.Put(refsAt, []byte(data))
	return s
}

// line is a record or an error of a walk, as text.
func line(r Record, err error) string {
	var bad *RowError
	switch {
	case errors.As(err, &bad):
		s := "! " + bad.Error()
		if bad.Partial {
			s += " (partial)"
		}
		return s
	case err != nil:
		return "!! " + err.Error()
	}
	return fmt.Sprintf("%s %d %s %s", r.Key, r.Size, r.Checksum, r.Record)
}

// lines walks to the end.
func lines(ctx context.Context, r Reader, after string) (out []string) {
	for rec, err := range r.Records(ctx, after) {
		out = append(out, line(rec, err))
	}
	return out
}

// resumes checks that a walk broken off after any record or error goes on with what
// comes next, and gives all lines.
func resumes(t *testing.T, r Reader) []string {
	t.Helper()
	type step struct{ text, pos string }
	var whole []step
	for rec, err := range r.Records(t.Context(), "") {
		pos := rec.Position
		var bad *RowError
		if errors.As(err, &bad) {
			pos = bad.Position
		} else if err != nil {
			t.Fatal(err)
		}
		whole = append(whole, step{line(rec, err), pos})
	}
	for i, from := range whole {
		if from.pos == "" {
			continue
		}
		var want []string
		for _, s := range whole[i+1:] {
			want = append(want, s.text)
		}
		got := lines(t.Context(), r, from.pos)
		// What is told once at the end counts what is behind the position alone.
		got, want = slices.DeleteFunc(got, isDoubled), slices.DeleteFunc(want, isDoubled)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("resumed after %q at %s:\n%q\nwant\n%q", from.text, from.pos, got, want)
		}
	}
	var out []string
	for _, s := range whole {
		out = append(out, s.text)
	}
	return out
}

func isDoubled(line string) bool { return strings.HasPrefix(line, "! "+ReasonDoubled) }

func counts(r Reader) Counts { return r.(Counter).Counts() }
