package pass

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// says answers every question to the registries with one word.
func says(word string, err error) func(context.Context, []reconcile.Target) ([]string, error) {
	return func(_ context.Context, ts []reconcile.Target) ([]string, error) {
		out := make([]string, len(ts))
		for i := range out {
			out[i] = word
		}
		return out, err
	}
}

func TestATargetThatARegistryRowNamesAndNothingIsThereOf(t *testing.T) {
	t.Parallel()
	unread := errors.New("cannot be read")
	for _, c := range []struct {
		name      string
		target    reconcile.Target
		registers func(context.Context, []reconcile.Target) ([]string, error)
		state     string // "" = no target at all
		reason    string
		registry  string
		exit      reconcile.ExitCode
	}{
		{"the row is still there", reconcile.Target{Row: true, Registry: "ok"}, says("ok", nil), "diverged", "no_store", "no_store", 3},
		{"the row has gone as well", reconcile.Target{Row: true, Registry: "ok"}, says("", nil), "", "", "", 1},
		{"the registry cannot be read again", reconcile.Target{Row: true, Registry: "ok"}, says("", unread), "incomplete", "registry_unread", "ok", 4},
		{"nobody can ask the registry", reconcile.Target{Row: true, Registry: "ok"}, nil, "incomplete", "registry_unread", "ok", 4},
		{"the row names another place", reconcile.Target{Row: true, Registry: "uri_differs", RegistryURI: "s3://x/t"}, says("uri_differs", nil), "diverged", "the registry names s3://x/t, and nothing is here", "uri_differs", 3},
		{"no row ever named it", reconcile.Target{}, says("ok", nil), "", "", "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			src := table(newScripted())
			src.facts = reconcile.Facts{Absent: true}
			src.target.Row, src.target.Registry, src.target.RegistryURI = c.target.Row, c.target.Registry, c.target.RegistryURI
			opts, targets, clock := options(newScripted(), src)
			opts.Registered = c.registers
			out, err := Look(t.Context(), targets, opts)
			if err != nil || out.Exit() != c.exit {
				t.Fatalf("exit %d, %v", out.Exit(), err)
			}
			if c.state == "" {
				if len(out.Targets) != 0 {
					t.Errorf("targets %+v", out.Targets)
				}
				return
			}
			if len(out.Targets) != 1 {
				t.Fatalf("targets %+v", out.Targets)
			}
			r := out.Targets[0]
			if r.State.String() != c.state || *r.Reason != c.reason || *r.Registry != c.registry || out.Totals.Targets != 1 {
				t.Errorf("%s %q %s", r.State, *r.Reason, *r.Registry)
			}
			if c.registers != nil && (len(clock.slept) == 0 || clock.slept[0] < time.Second) {
				t.Errorf("the row had no time to go: slept %v", clock.slept)
			}
		})
	}
}

// A registry of whose stores none is there was copied without them, or is read below
// another root: its rows are not to be removed one by one.
func TestARegistryWithoutAnyOfItsStores(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rows, absent int
		reason       string
	}{
		{3, 3, "everything_missing"},
		{2, 2, "no_store"},
		{4, 3, "no_store"}, // one is there, or was not looked at
	} {
		var sources []*fakeSource
		for i := range c.absent {
			src := table(newScripted())
			src.facts = reconcile.Facts{Absent: true}
			src.target.Name += string(rune('a' + i))
			src.target.Location.Key += string(rune('a' + i))
			src.target.Row, src.target.Rows, src.target.Registry = true, c.rows, reconcile.RegistryOK
			sources = append(sources, src)
		}
		opts, targets, _ := options(newScripted(), sources...)
		opts.Registered = says(reconcile.RegistryOK, nil)
		var log strings.Builder
		opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
		out, err := Look(t.Context(), targets, opts)
		if err != nil || len(out.Targets) != c.absent || out.Exit() != reconcile.ExitDivergence {
			t.Fatalf("%v, %v", out, err)
		}
		for _, r := range out.Targets {
			if deref(r.Reason) != c.reason || deref(r.Registry) != reconcile.RegistryNoStore {
				t.Errorf("%d of %d: %s, registry %s", c.absent, c.rows, deref(r.Reason), deref(r.Registry))
			}
		}
		want := 0
		if c.reason == "everything_missing" {
			want = 1
		}
		if n := strings.Count(log.String(), "none of the stores"); n != want {
			t.Errorf("%d of %d: %d lines:\n%s", c.absent, c.rows, n, log.String())
		}
	}
}

// What the registry says counts whatever the store's own state is, and never hides it.
func TestARegistryThatSpeaksAgainstAStore(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		registry string
		broken   bool
		state    string
		reason   string
		blocked  string
		exit     reconcile.ExitCode
	}{
		{"ok", "ok", false, "clean", "", "", 0},
		{"unregistered and whole", "unregistered", false, "clean", "unregistered", "", 3},
		{"unregistered and damaged", "unregistered", true, "diverged", "unregistered", reconcile.BlockedHalfDeleted, 3},
		{"elsewhere and whole", "uri_differs", false, "clean", "the registry names s3://x/t", "", 3},
		{"elsewhere and damaged", "uri_differs", true, "diverged", "the registry names s3://x/t", reconcile.BlockedOutsideRoot, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScripted()
			src := table(s)
			if src.target.Registry = c.registry; c.registry == "uri_differs" {
				src.target.RegistryURI = "s3://x/t"
			}
			if c.broken {
				delete(s.answer, root+"/data/b")
			}
			opts, targets, _ := options(s, src)
			out, err := Look(t.Context(), targets, opts)
			if err != nil || len(out.Targets) != 1 {
				t.Fatalf("%v, %v", out, err)
			}
			r := out.Targets[0]
			reason := ""
			if r.Reason != nil {
				reason = *r.Reason
			}
			if r.State.String() != c.state || reason != c.reason || *r.Registry != c.registry || out.Exit() != c.exit {
				t.Errorf("%s %q %s, exit %d", r.State, reason, *r.Registry, out.Exit())
			}
			for _, f := range out.Findings {
				if !slices.Equal(f.BlockedBy, []string{c.blocked}) {
					t.Errorf("blocked by %v", f.BlockedBy)
				}
			}
		})
	}
}

// Whoever names a store may have it repaired without a row.
func TestAStoreWithoutARowThatIsNamed(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{false, true} {
		for _, mark := range []func(*reconcile.Target){func(t *reconcile.Target) { t.Registry = reconcile.RegistryUnregistered }, func(t *reconcile.Target) { t.NoRow = true }} {
			s := newScripted()
			src := table(s)
			mark(&src.target)
			delete(s.answer, root+"/data/b")
			opts, targets, _ := options(s, src)
			opts.Policy.NamedTarget = named
			out, err := Look(t.Context(), targets, opts)
			if err != nil || len(out.Findings) != 1 {
				t.Fatalf("%v, %v", out, err)
			}
			if blocked := slices.Contains(out.Findings[0].BlockedBy, reconcile.BlockedHalfDeleted); blocked == named {
				t.Errorf("named: %v, blocked by %v", named, out.Findings[0].BlockedBy)
			}
		}
	}
}

// Where a registry could not be read, nobody knows whether the store is being removed.
func TestAStoreWhoseRegistryCouldNotBeRead(t *testing.T) {
	t.Parallel()
	for _, broken := range []bool{false, true} {
		s := newScripted()
		src := table(s)
		src.target.RegistryUnread = true
		if broken {
			delete(s.answer, root+"/data/b")
		}
		opts, targets, _ := options(s, src)
		out, err := Look(t.Context(), targets, opts)
		if err != nil || len(out.Targets) != 1 {
			t.Fatalf("%v, %v", out, err)
		}
		r := out.Targets[0]
		if !broken && (r.State != reconcile.StateClean || r.Reason != nil) {
			t.Errorf("whole: %s %v", r.State, r.Reason)
		}
		if broken && (r.State != reconcile.StateDiverged || deref(r.Reason) != reconcile.ReasonRegistryUnread) {
			t.Errorf("damaged: %s %q", r.State, deref(r.Reason))
		}
		for _, f := range out.Findings {
			if !slices.Contains(f.BlockedBy, reconcile.BlockedIncompleteLook) {
				t.Errorf("blocked by %v", f.BlockedBy)
			}
		}
	}
}

func TestTheRowJustBeforeACommit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		row       bool
		registers func(context.Context, []reconcile.Target) ([]string, error)
		refused   string
	}{
		{"is there", true, says("ok", nil), ""},
		{"is gone", true, says("", nil), reconcile.BlockedHalfDeleted},
		{"names another place", true, says("uri_differs", nil), reconcile.BlockedOutsideRoot},
		{"cannot be read", true, says("ok", &objstore.Error{Status: 503, Err: objstore.ErrThrottled}), reconcile.BlockedIncompleteLook},
		{"cannot be asked for", true, nil, reconcile.BlockedIncompleteLook},
		{"never was", false, says("", nil), ""},
	} {
		a := &applier{opts: ApplyOptions{Options: Options{Registered: c.registers, Logger: slog.New(slog.DiscardHandler)}}}
		err := a.stillRegistered(t.Context(), reconcile.Target{Name: "x", Row: c.row})
		var refusal *reconcile.Refusal
		if got := errors.As(err, &refusal); got != (c.refused != "") || got && refusal.Reason != c.refused {
			t.Errorf("a row that %s: %v", c.name, err)
		}
	}
}
