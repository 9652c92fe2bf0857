// Package report tells what a pass found: as Parquet files for analysts
// ([Writer]), as one JSON document for programs ([JSON]) and as text for the
// person who is on call ([Text]).
//
// Layout of the Parquet files below the base location, one per report and pass:
//
//	report=findings/pass_date=2026-01-31/pass_id=<uuid>/part-00000.parquet
//	report=findings/pass_date=2026-01-31/pass_id=<uuid>/_SUCCESS
//
// Columns carry the names of the JSON document; the three partition columns stand
// in the path only. docs/report-schema.md lists every column.
//
// Only [Writer.Upload] and [Writer.Succeed] touch the network, and they only
// create: nothing that is there is ever replaced.
package report

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

// The reports, as their partition names them.
const (
	KindFindings        = "findings"
	KindReferences      = "references"
	KindTargets         = "targets"
	KindRepairs         = "repairs"
	KindRepairFragments = "repair_fragments"
	KindPasses          = "passes"
)

// Errors of the writer.
var (
	// ErrExists: the base location already holds a report of this pass.
	ErrExists = errors.New("report of this pass exists")
	// ErrCount: the rows that were streamed are not the rows of the pass document.
	ErrCount = errors.New("report does not hold what the pass says")
	// ErrClosed: the writer was uploaded, aborted, or failed before.
	ErrClosed = errors.New("report is closed")
)

// Options say where the reports of one pass go.
type Options struct {
	// Store creates the objects.
	Store objstore.Creator
	// Base is the prefix that holds all reports of all passes.
	Base objstore.Location
	// PassID is a UUID and becomes a partition.
	PassID string
	// PassDate is the start of the pass; its UTC day becomes a partition.
	PassDate time.Time
	// References asks for the report of every reference, the healthy ones included.
	References bool
	// TempDir is where rows wait for the upload; empty means the system's.
	TempDir string
	// Logger may be nil.
	Logger *slog.Logger
}

// CheckedReference is one row of the references report: a reference and what the
// first look said.
type CheckedReference struct {
	Target, Store string
	Role          reconcile.Role
	Path, URL     string
	// Version is 0 when there is none to tell.
	Version uint64
	// FragmentID is nil for an object that belongs to no fragment.
	FragmentID *uint64
	// ExpectedSize and ObservedSize are in bytes, nil when unknown.
	ExpectedSize, ObservedSize *int64
	Verdict                    reconcile.Verdict
	// HTTPStatus is nil when there was no answer over HTTP.
	HTTPStatus *int
}

// Writer takes the rows of one pass while it runs and keeps them in files on disk,
// so that memory is bounded by one row group. Its order of use: rows in any order,
// Upload once, Succeed once. Abort at any time removes what is on disk.
//
// It is safe for concurrent use. After an error of any method only Abort is left.
type Writer struct {
	opts Options
	log  *slog.Logger
	dir  string

	mu         sync.Mutex
	stage      stage
	findings   *table[findingRow]
	references *table[referenceRow] // nil unless asked for
	targets    *table[targetRow]
	repairs    *table[repairRow]
	fragments  *table[repairFragmentRow]
	passes     *table[passRow]
}

type stage uint8

const (
	stageOpen stage = iota
	stageUploaded
	stageClosed
)

// NewWriter makes the temporary files. It does not touch the network.
func NewWriter(ctx context.Context, opts Options) (*Writer, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open report: %w", err)
	}
	if opts.Store == nil || opts.Base == (objstore.Location{}) || opts.PassDate.IsZero() {
		return nil, errors.New("open report: store, base and pass date are needed")
	}
	id, err := uuid.Parse(opts.PassID)
	if err != nil || id.String() != opts.PassID {
		return nil, fmt.Errorf("open report: pass id %q is not a UUID in its usual form", opts.PassID)
	}
	w := &Writer{opts: opts, log: opts.Logger}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if w.dir, err = os.MkdirTemp(opts.TempDir, "reconcile-report-"); err != nil {
		return nil, fmt.Errorf("open report: %w", err)
	}
	if err := w.openTables(); err != nil {
		w.Abort()
		return nil, fmt.Errorf("open report: %w", err)
	}
	return w, nil
}

func (w *Writer) openTables() (err error) {
	if w.findings, err = newTable[findingRow](w.dir, KindFindings); err != nil {
		return err
	}
	if w.opts.References {
		if w.references, err = newTable[referenceRow](w.dir, KindReferences); err != nil {
			return err
		}
	}
	if w.targets, err = newTable[targetRow](w.dir, KindTargets); err != nil {
		return err
	}
	if w.repairs, err = newTable[repairRow](w.dir, KindRepairs); err != nil {
		return err
	}
	if w.fragments, err = newTable[repairFragmentRow](w.dir, KindRepairFragments); err != nil {
		return err
	}
	w.passes, err = newTable[passRow](w.dir, KindPasses)
	return err
}

// URI is where the findings of the pass will be read: the report's URI of the
// pass document, known before the upload. It does not change.
func (w *Writer) URI() string { return w.location(KindFindings, partName).String() }

const (
	partName    = "part-00000.parquet"
	successName = "_SUCCESS"
)

func (w *Writer) location(kind, name string) objstore.Location {
	return w.opts.Base.Join("report=" + kind).Join("pass_date=" + w.opts.PassDate.UTC().Format(time.DateOnly)).
		Join("pass_id=" + w.opts.PassID).Join(name)
}

// add runs f on the open tables under the lock and closes the writer when it fails.
func (w *Writer) add(ctx context.Context, f func() error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stage != stageOpen {
		return fmt.Errorf("add to report: %w", ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("add to report: %w", err)
	}
	if err := f(); err != nil {
		w.stage = stageClosed
		return fmt.Errorf("add to report: %w", err)
	}
	return nil
}

// Findings adds findings. It keeps nothing of the slice.
func (w *Writer) Findings(ctx context.Context, findings []reconcile.Finding) error {
	return w.add(ctx, func() error { return writeRows(w.findings, findings, toFindingRow) })
}

// WantsReferences reports whether References does anything.
func (w *Writer) WantsReferences() bool { return w.opts.References }

// References adds references; without Options.References it does nothing.
func (w *Writer) References(ctx context.Context, references []CheckedReference) error {
	return w.add(ctx, func() error {
		if w.references == nil {
			return nil
		}
		return writeRows(w.references, references, toReferenceRow)
	})
}

// Target adds one target.
func (w *Writer) Target(ctx context.Context, t reconcile.TargetResult) error {
	return w.add(ctx, func() error { return w.targets.write(toTargetRow(t)) })
}

// Repair adds one repair and its fragments.
func (w *Writer) Repair(ctx context.Context, r reconcile.RepairOutcome) error {
	return w.add(ctx, func() error {
		row, fragments := toRepairRows(r)
		if err := w.repairs.write(row); err != nil {
			return err
		}
		return w.fragments.write(fragments...)
	})
}

// Upload adds the pass itself, creates every file below the base, and removes the
// temporary ones. It returns [Writer.URI]. Each file is created whole or not at
// all; until Succeed none of them counts as complete.
//
// The error matches [ErrCount] when the rows are not those of the pass document,
// and [ErrExists] when the base already holds a report of this pass.
func (w *Writer) Upload(ctx context.Context, pass reconcile.Pass) (uri string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stage != stageOpen {
		return "", fmt.Errorf("upload report: %w", ErrClosed)
	}
	w.stage = stageClosed // until all is there
	if err := w.checkCounts(pass); err != nil {
		return "", fmt.Errorf("upload report: %w", err)
	}
	if err := w.passes.write(toPassRow(pass)); err != nil {
		return "", fmt.Errorf("upload report: %w", err)
	}
	for _, f := range w.files() {
		if err := w.upload(ctx, f); err != nil {
			return "", err
		}
	}
	w.removeFiles()
	w.stage = stageUploaded
	w.log.InfoContext(ctx, "report uploaded", "uri", w.URI(), "findings", w.findings.rows)
	return w.URI(), nil
}

// checkCounts compares the rows with the document: two reports of one pass that
// disagree are worse than none.
func (w *Writer) checkCounts(pass reconcile.Pass) error {
	if pass.PassID != w.opts.PassID {
		return fmt.Errorf("%w: it was opened for pass %s, not %s", ErrCount, w.opts.PassID, pass.PassID)
	}
	for _, c := range []struct {
		kind      string
		rows, doc int64
		open      bool // the document may hold fewer
	}{
		{KindFindings, w.findings.rows, int64(len(pass.Findings)), pass.FindingsTruncated},
		{KindTargets, w.targets.rows, int64(len(pass.Targets)), false},
		{KindRepairs, w.repairs.rows, int64(len(pass.Repairs)), false},
	} {
		if c.rows < c.doc || c.rows != c.doc && !c.open {
			return fmt.Errorf("%w: %d rows of %s, %d in the document", ErrCount, c.rows, c.kind, c.doc)
		}
	}
	return nil
}

func (w *Writer) upload(ctx context.Context, f reportFile) error {
	loc := w.location(f.name(), partName)
	body, err := f.finish()
	if err != nil {
		return fmt.Errorf("write report %s: %w", f.name(), err)
	}
	return w.create(ctx, loc, body, body.Size())
}

func (w *Writer) create(ctx context.Context, loc objstore.Location, body io.Reader, size int64) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("upload report %s: %w", loc, err)
	}
	_, err := w.opts.Store.Create(ctx, loc, body, size)
	switch {
	case errors.Is(err, objstore.ErrExist):
		return fmt.Errorf("upload report %s: %w and is never replaced: %w", loc, ErrExists, err)
	case err != nil:
		return fmt.Errorf("upload report %s: %w", loc, err)
	}
	w.log.DebugContext(ctx, "report file created", "uri", loc.String(), "bytes", size)
	return nil
}

// Succeed creates the _SUCCESS marker beside every file: the report is complete and
// everything else that should be recorded of the pass is. Upload comes first.
func (w *Writer) Succeed(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stage != stageUploaded {
		return fmt.Errorf("complete report: %w", ErrClosed)
	}
	w.stage = stageClosed
	for _, f := range w.files() {
		if err := w.create(ctx, w.location(f.name(), successName), bytes.NewReader(nil), 0); err != nil {
			return err
		}
	}
	return nil
}

// Abort removes the temporary files and closes the writer. What is uploaded stays,
// without a marker. It may be called at any time and more than once, so that it can
// be deferred; after Succeed it does nothing.
func (w *Writer) Abort() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stage = stageClosed
	w.removeFiles()
}

func (w *Writer) removeFiles() {
	for _, f := range w.files() {
		f.close()
	}
	if w.dir == "" {
		return
	}
	if err := os.RemoveAll(w.dir); err != nil {
		w.log.Warn("temporary report files stay", "dir", w.dir, "err", err)
	}
	w.dir = ""
}

// files are the tables in the order of upload: the pass last, since it speaks of
// the others.
func (w *Writer) files() []reportFile {
	var fs []reportFile
	if w.findings != nil {
		fs = append(fs, w.findings)
	}
	if w.references != nil {
		fs = append(fs, w.references)
	}
	if w.targets != nil {
		fs = append(fs, w.targets)
	}
	if w.repairs != nil {
		fs = append(fs, w.repairs)
	}
	if w.fragments != nil {
		fs = append(fs, w.fragments)
	}
	if w.passes != nil {
		fs = append(fs, w.passes)
	}
	return fs
}
