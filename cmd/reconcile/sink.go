package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/internal/objstore/factory"
	"github.com/rocketkeep/reconcile/reconcile"
	"github.com/rocketkeep/reconcile/reconcile/pass"
	"github.com/rocketkeep/reconcile/report"
)

// openReport opens the Parquet reports, or gives nil when none are asked for. It
// proves that the place can be opened before an hour of looking.
func (s *settings) openReport(ctx context.Context, doc reconcile.Pass, log *slog.Logger) (*report.Writer, error) {
	if s.reportURI == "" {
		return nil, nil
	}
	// A set of its own: the one that looks is never asked for a writer.
	set := factory.New(s.stores)
	base, err := set.Locate(s.reportURI)
	if err != nil {
		return nil, err
	}
	if base.Scheme == "file" {
		if err := os.MkdirAll(base.Key, 0o755); err != nil {
			return nil, fmt.Errorf("open report: %w", err)
		}
	}
	store, err := set.Writer(ctx, base)
	if err != nil {
		return nil, fmt.Errorf("open report: %w", err)
	}
	return report.NewWriter(ctx, report.Options{Store: store, Base: base, PassID: doc.PassID, PassDate: doc.StartedAt, References: s.references, Logger: log})
}

// reportSink streams a pass into its reports. Targets wait for the end, because a
// command may judge them differently from the look. The zero value takes
// everything and writes nothing.
type reportSink struct {
	w          *report.Writer
	references bool
	meter      *meter // may be nil
}

var _ pass.Sink = (*reportSink)(nil)

// WantsReferences implements pass.Sink.
func (s *reportSink) WantsReferences() bool { return s.w != nil && s.references || s.counts() }

func (s *reportSink) counts() bool { return s.meter != nil && s.meter.set != nil }

// References implements pass.Sink.
func (s *reportSink) References(ctx context.Context, seen []pass.Seen) error {
	if s.counts() {
		for _, x := range seen {
			if x.Verdict == reconcile.Present {
				s.meter.present(x.Ref.Role)
			}
		}
	}
	if s.w == nil || !s.references {
		return nil
	}
	rows := make([]report.CheckedReference, len(seen))
	for i, x := range seen {
		rows[i] = checkedReference(x)
	}
	// Rows go to local files: a look that was ended still keeps what it saw.
	return s.w.References(context.WithoutCancel(ctx), rows)
}

func checkedReference(x pass.Seen) report.CheckedReference {
	r := report.CheckedReference{Target: x.Target, Store: x.Store, Role: x.Ref.Role, Path: x.Ref.Path, URL: x.Ref.Location.String(), Version: x.Ref.Version, Verdict: x.Verdict}
	if x.Ref.HasFragment {
		r.FragmentID = &x.Ref.FragmentID
	}
	if size, _ := x.Ref.Recorded(); size > 0 {
		r.ExpectedSize = &size
	}
	if x.ObservedSize != objstore.Unknown {
		r.ObservedSize = &x.ObservedSize
	}
	if x.HTTPStatus != 0 {
		r.HTTPStatus = &x.HTTPStatus
	}
	return r
}

// Findings implements pass.Sink.
func (s *reportSink) Findings(ctx context.Context, findings []reconcile.Finding) error {
	if s.w == nil {
		return nil
	}
	return s.w.Findings(ctx, findings)
}

// Target implements pass.Sink.
func (s *reportSink) Target(context.Context, reconcile.TargetResult) error { return nil }

// upload writes the reports of a pass that ran to its end and puts their URI into
// the document. An interrupted pass writes none: half a pass is no report.
func (s *reportSink) upload(ctx context.Context, p *reconcile.Pass) error {
	if s.w == nil || ctx.Err() != nil {
		return nil
	}
	for _, t := range p.Targets {
		if err := s.w.Target(ctx, t); err != nil {
			return s.failed(p, err)
		}
	}
	for _, r := range p.Repairs {
		if err := s.w.Repair(ctx, r); err != nil {
			return s.failed(p, err)
		}
	}
	p.ReportURI = reconcile.Ptr(s.w.URI())
	if _, err := s.w.Upload(ctx, *p); err != nil {
		return s.failed(p, err)
	}
	return nil
}

// succeed says that the reports are complete, and everything else that is recorded
// of the pass is.
func (s *reportSink) succeed(ctx context.Context, p *reconcile.Pass) error {
	if s.w == nil || ctx.Err() != nil {
		return nil
	}
	if err := s.w.Succeed(ctx); err != nil {
		return s.failed(p, err)
	}
	return nil
}

// failed marks the pass as one that could not do all it was asked for. What it
// found is printed all the same.
func (s *reportSink) failed(p *reconcile.Pass, err error) error {
	p.ReportURI = nil
	code := reconcile.WorstExit(p.Exit.Code, reconcile.ExitFailed)
	p.Exit = reconcile.Exit{Code: code, Name: code.Name()}
	return errors.Join(errReport, err)
}

// errReport: the reports could not be written.
var errReport = errors.New("the reports are not written")

func (s *reportSink) abort() {
	if s.w != nil {
		s.w.Abort()
	}
}

// unversioned is a store that is known to keep no object versions: there is
// nothing to ask for.
type unversioned struct{ objstore.Reader }

// Versions implements objstore.Versioner.
func (unversioned) Versions(context.Context, objstore.Location) iter.Seq2[objstore.Attrs, error] {
	return func(func(objstore.Attrs, error) bool) {}
}
