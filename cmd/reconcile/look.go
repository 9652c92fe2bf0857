package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/fleet"
	"github.com/rocketkeep/reconcile/reconcile/pass"
	"github.com/rocketkeep/reconcile/reconcile/tables"
)

// rolesLookedAt are the roles that this version looks at.
var rolesLookedAt = []reconcile.Role{reconcile.RoleData, reconcile.RoleDeletion, reconcile.RoleIndex, reconcile.RoleOverlay, reconcile.RoleRowIDs, reconcile.RoleTransaction, reconcile.RoleManifest}

// looked is what a look found, with the document of the pass.
type looked struct {
	pass    reconcile.Pass
	actions []reconcile.PlanAction
	// interrupted is the cause when the look was ended early.
	interrupted error
}

// look carries out one pass and writes its report. judge, when not nil, turns the
// outcome of the look into that of the command before anything is written. The
// error is about what prevented the look from being made at all.
func (a *app) look(ctx context.Context, s *settings, p *progress, judge func(*pass.Outcome) reconcile.ExitCode) (*looked, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, failure(fmt.Errorf("make a pass id: %w", err))
	}
	log := a.withPass(id.String())
	s.stores.Logger = log
	set := factory.New(s.stores)
	defer set.Close()
	doc := reconcile.Pass{
		PassID: id.String(), Mode: s.mode, ToolVersion: thisBuild().Version, Actor: actor(), Host: host(), StartedAt: time.Now().UTC(),
		Scope: s.scope(), Repairs: []reconcile.RepairOutcome{},
	}
	if s.reason != "" {
		doc.Reason = &s.reason
	}
	found, err := discover(ctx, set, s, log)
	if err != nil {
		return nil, failure(err)
	}
	if len(found.targets)+len(found.problems) == 0 {
		a.sayNoTargets(s, found)
		doc.Reason = cmp.Or(doc.Reason, reconcile.Ptr(reconcile.ReasonNoTargets))
	}
	rw, err := s.openReport(ctx, doc, log)
	if err != nil {
		return nil, failure(err)
	}
	sink := &reportSink{w: rw, references: s.references}
	defer sink.abort()
	log.Info("look begins", "targets", len(found.targets))
	out, err := pass.Look(ctx, found.targets, pass.Options{
		Open: found.open(set, s.writersStopped, log), Stores: found.stores(set), Depth: s.depth, ConfirmAfter: s.confirmAfter, MinManifestAge: s.minManifestAge,
		TargetTimeout: s.targetTimeout, Concurrency: s.concurrency, Policy: s.policy, Clock: pass.SystemClock{}, Logger: log,
		Problems: found.problems, ProblemFindings: found.findings, Sink: sink, Progress: p.show,
	})
	p.done()
	if err != nil {
		return nil, failure(err)
	}
	code := out.Exit()
	if judge != nil {
		code = judge(out)
	}
	l := &looked{actions: out.Actions, interrupted: out.Interrupted}
	l.pass = complete(doc, out, set, code)
	err = sink.finish(ctx, &l.pass)
	log.Info("look ended", "exit", l.pass.Exit.Code, "targets", l.pass.Totals.Targets, "references", l.pass.Totals.References, "checked", l.pass.Totals.Checked, "findings", len(l.pass.Findings))
	return l, failure(err)
}

// complete fills the document with what the pass found.
func complete(doc reconcile.Pass, out *pass.Outcome, set *factory.Set, code reconcile.ExitCode) reconcile.Pass {
	doc.FinishedAt = time.Now().UTC()
	doc.Targets, doc.Findings, doc.Totals = out.Targets, out.Findings, out.Totals
	c := set.Counters()
	doc.Totals.Requests = reconcile.Requests{Head: c.Head, Get: c.Get, List: c.List, Put: c.Put, Throttled: c.Throttled, Retried: c.Retried}
	doc.Coverage = reconcile.Coverage{References: doc.Totals.References, Checked: doc.Totals.Checked}
	if doc.Coverage.References > 0 {
		doc.Coverage.Ratio = reconcile.Ptr(float64(doc.Coverage.Checked) / float64(doc.Coverage.References))
	}
	var interrupt *interruptError
	if errors.As(out.Interrupted, &interrupt) {
		code = interrupt.exit()
	}
	doc.Exit = reconcile.Exit{Code: code, Name: code.Name()}
	return doc
}

func (s *settings) scope() reconcile.Scope {
	sc := reconcile.Scope{Depth: s.depth, Roles: rolesLookedAt, TargetsFilter: []string{}}
	for _, p := range s.places {
		sc.Versions = max(sc.Versions, p.versions)
	}
	sc.TargetsFilter = append(sc.TargetsFilter, s.filter.Include...)
	for _, x := range s.filter.Exclude {
		sc.TargetsFilter = append(sc.TargetsFilter, "!"+x)
	}
	return sc
}

func (a *app) sayNoTargets(s *settings, f *foundTargets) {
	where := s.places[0].uri
	if len(s.places) > 1 {
		where = fmt.Sprintf("any of the %d places", len(s.places))
	}
	if f.filtered > 0 {
		fmt.Fprintf(a.stderr, "reconcile: %d targets below %s, and --target and --exclude leave out all of them\n", f.filtered, where)
		return
	}
	fmt.Fprintf(a.stderr, "reconcile: no Lance dataset at or below %s; is it the folder that holds the tables?\n", where)
}

// foundTargets are the targets of all places, each with the place that it is of.
type foundTargets struct {
	targets  []reconcile.Target
	problems []reconcile.TargetResult
	findings []reconcile.Finding
	filtered int
	places   map[string]place // by canonical URI of the target
	bare     []objstore.Location
}

// discover lists every place. Names of configured stores take the place of URIs.
func discover(ctx context.Context, set *factory.Set, s *settings, log *slog.Logger) (*foundTargets, error) {
	out := &foundTargets{places: map[string]place{}}
	for _, p := range s.places {
		// Without a filter, so that a pattern may name a configured store.
		found, err := fleet.Discover(ctx, set, []string{p.uri}, fleet.Filter{}, log)
		if err != nil {
			return nil, err
		}
		for _, t := range found.Targets {
			key := t.Location.Canonical()
			if _, dup := out.places[key]; dup {
				continue // places overlap
			}
			if p.name != "" {
				t.Store = p.name
			}
			if !s.filter.Chosen(t) {
				out.filtered++
				continue
			}
			out.places[key] = p
			out.targets = append(out.targets, t)
		}
		for i := range found.Problems {
			if p.name != "" {
				found.Problems[i].Store = p.name
			}
		}
		for i := range found.Findings {
			if p.name != "" {
				found.Findings[i].Store = p.name
			}
		}
		out.problems = append(out.problems, found.Problems...)
		out.findings = append(out.findings, found.Findings...)
		if p.noVersioning {
			loc, err := set.Locate(p.uri)
			if err != nil {
				return nil, err
			}
			out.bare = append(out.bare, loc)
		}
	}
	return out, nil
}

func (f *foundTargets) open(set *factory.Set, writersStopped bool, log *slog.Logger) func(reconcile.Target) reconcile.Source {
	stores := f.stores(set)
	return func(t reconcile.Target) reconcile.Source {
		p := f.places[t.Location.Canonical()]
		return tables.New(t, stores, tables.Options{Versions: p.versions, ExternalCommit: p.external, WritersStopped: writersStopped, Logger: log})
	}
}

// stores are those of the set, told which of them keep no object versions.
func (f *foundTargets) stores(set *factory.Set) lookStores { return lookStores{set, f.bare} }

type lookStores struct {
	*factory.Set
	bare []objstore.Location
}

// Reader opens the store of a place.
func (s lookStores) Reader(ctx context.Context, root objstore.Location) (objstore.Reader, error) {
	r, err := s.Set.Reader(ctx, root)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(s.bare, func(b objstore.Location) bool { _, ok := root.Dir().Rel(b); return ok }) {
		return unversioned{r}, nil
	}
	return r, nil
}

// actor is who runs the program, for the record.
func actor() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}

func host() string {
	h, _ := os.Hostname() // a host without a name is no reason not to look
	return h
}
