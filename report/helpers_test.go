package report

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

var update = flag.Bool("update", false, "rewrite golden files and docs/report-schema.md")

// golden compares got with a file of testdata, or writes it with -update.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s differs (-want +got; -update rewrites it):\n%s", path, d)
	}
}

// dirStore creates objects as files of a folder and remembers the order.
type dirStore struct {
	dir  string
	mu   sync.Mutex
	keys []string
	// fail is asked before each create.
	fail func(loc objstore.Location) error
}

var _ objstore.Creator = (*dirStore)(nil)

func newDirStore(t *testing.T) *dirStore { return &dirStore{dir: t.TempDir()} }

func (s *dirStore) base() objstore.Location {
	return objstore.Location{Scheme: "mem", Bucket: "ops", Key: "reconcile/"}
}

func (s *dirStore) Create(_ context.Context, loc objstore.Location, body io.Reader, size int64) (objstore.Attrs, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		if err := s.fail(loc); err != nil {
			return objstore.Attrs{}, &objstore.Error{Op: "create", Location: loc, Err: err}
		}
	}
	b, err := io.ReadAll(body)
	if err != nil {
		return objstore.Attrs{}, err
	}
	if int64(len(b)) != size {
		return objstore.Attrs{}, fmt.Errorf("create %s: %d bytes announced, %d sent", loc, size, len(b))
	}
	p := filepath.Join(s.dir, filepath.FromSlash(loc.Key))
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return objstore.Attrs{}, err
	}
	f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return objstore.Attrs{}, &objstore.Error{Op: "create", Location: loc, Status: 412, Err: objstore.ErrExist}
	}
	if err != nil {
		return objstore.Attrs{}, err
	}
	if _, err := f.Write(b); err != nil {
		return objstore.Attrs{}, err
	}
	s.keys = append(s.keys, loc.Key)
	return objstore.Attrs{Location: loc, Size: size}, f.Close()
}

// part is the path of a report's file.
func (s *dirStore) part(kind string) string {
	return filepath.Join(s.dir, "reconcile", "report="+kind, "pass_date=2026-01-31", "pass_id="+passID, partName)
}

const passID = "0198c0de-7a11-7000-8000-000000000001"

// start is late in the evening of the 30th west of Greenwich, the 31st in UTC.
var start = time.Date(2026, 1, 30, 23, 30, 0, 123456000, time.FixedZone("", -5*3600))

func newTestWriter(t *testing.T, s *dirStore, mod ...func(*Options)) *Writer {
	t.Helper()
	opts := Options{Store: s, Base: s.base(), PassID: passID, PassDate: start, TempDir: t.TempDir()}
	for _, m := range mod {
		m(&opts)
	}
	w, err := NewWriter(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Abort)
	return w
}

// writePass streams the rows of a pass and uploads it.
func writePass(t *testing.T, w *Writer, p reconcile.Pass) string {
	t.Helper()
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range p.Findings {
		check(w.Findings(ctx, p.Findings[i:i+1]))
	}
	for _, r := range p.Targets {
		check(w.Target(ctx, r))
	}
	for _, r := range p.Repairs {
		check(w.Repair(ctx, r))
	}
	uri, err := w.Upload(ctx, p)
	check(err)
	check(w.Succeed(ctx))
	return uri
}

func ptr[T any](v T) *T { return &v }

func loc(t *testing.T, uri string) objstore.Location {
	t.Helper()
	l, err := objstore.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// sample is a target under construction.
type sample struct {
	t      *testing.T
	pass   *reconcile.Pass
	target reconcile.Target
	result reconcile.TargetResult
}

func addTarget(t *testing.T, p *reconcile.Pass, name, uri string, state reconcile.State, mods ...func(*reconcile.TargetResult)) *sample {
	t.Helper()
	s := &sample{t: t, pass: p, target: reconcile.Target{Name: name, Store: "rocketkeep", Kind: "table", Location: loc(t, uri)}}
	p.Targets = append(p.Targets, reconcile.TargetResult{Target: name, Store: "rocketkeep", Kind: "table", URI: uri, State: state,
		References: 10, Checked: 10, NotChecked: []reconcile.NotChecked{}})
	r := &p.Targets[len(p.Targets)-1]
	for _, m := range mods {
		m(r)
	}
	s.target.Store, s.target.Kind = r.Store, r.Kind
	s.result = *r
	return s
}

func (s *sample) find(ref reconcile.Reference, v reconcile.Verdict, mods ...func(*reconcile.Finding)) *sample {
	s.t.Helper()
	if ref.Location == (objstore.Location{}) && ref.Reason != reconcile.ReasonUnknownBase {
		ref.Location = s.target.Location.Join(ref.Path)
	}
	f := reconcile.NewFinding(s.target, ref, start)
	f.Verdict = v
	for _, m := range mods {
		m(&f)
	}
	s.pass.Findings = append(s.pass.Findings, f)
	for i := range s.pass.Targets {
		if r := &s.pass.Targets[i]; r.Target == s.target.Name && r.Store == s.target.Store {
			r.Findings++
		}
	}
	return s
}

// dataFile is a reference to a data file of a fragment with rows.
func dataFile(fragment uint64, rows int64) reconcile.Reference {
	return reconcile.Reference{Role: reconcile.RoleData, Path: fmt.Sprintf("data/%s%02d.lance", strings.Repeat("1011", 12), fragment),
		Version: 118, HasFragment: true, FragmentID: fragment, Size: 12_345, PhysicalRows: rows + 5, LiveRows: rows}
}

func finish(p *reconcile.Pass, code reconcile.ExitCode) reconcile.Pass {
	p.Exit = reconcile.Exit{Code: code, Name: code.Name()}
	t := &p.Totals
	t.TargetsByState, t.Verdicts = map[reconcile.State]int64{}, map[reconcile.Verdict]int64{}
	for _, r := range p.Targets {
		t.Targets++
		t.TargetsByState[r.State]++
		t.References += r.References
		t.Checked += r.Checked
		if r.RowsAtRisk != nil {
			t.RowsAtRisk += *r.RowsAtRisk
		}
	}
	t.Verdicts[reconcile.Present] = t.References
	for _, f := range p.Findings {
		t.Verdicts[f.Verdict]++
		t.Verdicts[reconcile.Present]--
	}
	p.Coverage = reconcile.Coverage{References: t.References, Checked: t.Checked}
	if t.References > 0 {
		p.Coverage.Ratio = ptr(float64(t.Checked) / float64(t.References))
	}
	return *p
}

func emptyPass() *reconcile.Pass {
	return &reconcile.Pass{
		PassID: passID, Mode: "off", ToolVersion: "0.1.0", Actor: "oncall", Host: "laptop",
		StartedAt: start, FinishedAt: start.Add(72*time.Second + 340*time.Millisecond),
		Scope:  reconcile.Scope{Roles: []reconcile.Role{reconcile.RoleData, reconcile.RoleDeletion}},
		Totals: reconcile.Totals{Requests: reconcile.Requests{Head: 12_345, Get: 40, List: 15, Retried: 2}},
	}
}

func cleanPass(t *testing.T) reconcile.Pass {
	p := emptyPass()
	addTarget(t, p, "generic:a", "s3://rocketkeep/a.generic.lance", reconcile.StateClean)
	addTarget(t, p, "generic:b", "s3://rocketkeep/b.generic.lance", reconcile.StateClean)
	return finish(p, reconcile.ExitClean)
}

// fullPass has every column of every report filled at least once and null at least once.
func fullPass(t *testing.T) reconcile.Pass {
	p := emptyPass()
	p.Reason = ptr("incident 42: <orders> & more")
	p.Scope.TargetsFilter = []string{"generic:*"}
	addTarget(t, p, "generic:orders", "s3://rocketkeep/orders.generic.lance", reconcile.StateDiverged, func(r *reconcile.TargetResult) {
		r.Version, r.RowsAtRisk, r.LiveRows, r.Fragments, r.PendingGenerations = ptr(uint64(118)), ptr(int64(40_000)), ptr(int64(9_000_000)), ptr(int64(0)), ptr(int64(3))
		r.Registry = ptr("ok")
		r.NotChecked = []reconcile.NotChecked{{Role: reconcile.RoleBlobSidecar, Count: ptr(int64(12)), Reason: "not built"}, {Role: reconcile.RoleWALGeneration, Reason: "not built"}}
	}).
		find(dataFile(7, 40_000), reconcile.Recoverable, func(f *reconcile.Finding) {
			f.Scopes = []string{"latest", "tag:é"}
			f.HTTPStatus, f.ErrorCode, f.RequestID = ptr(404), ptr("NoSuchKey"), ptr("4442587FB7D0A2F9")
			f.ConfirmedAt, f.RecoverableUntil = ptr(start.Add(time.Minute)), ptr(start.Add(30*24*time.Hour))
			f.ColumnsLost, f.ColumnsKept = []string{"vector"}, []string{"id", "text"}
			f.PeersAsked, f.PeersHaving = []string{"s3://dr/"}, []string{"s3://dr/"}
			f.ProposedAction, f.BlockedBy = reconcile.ActionRestore, []string{"rung_open:version", "drop_after"}
		}).
		find(reconcile.Reference{Role: reconcile.RoleIndex, Path: "_indices/u/page.idx", Version: 117, PhysicalRows: -1, LiveRows: -1, Checksum: "sha256:00ff"}, reconcile.ChecksumMismatch,
			func(f *reconcile.Finding) {
				f.ObservedSize, f.ObservedChecksum, f.Reason = ptr(int64(0)), ptr("sha256:00fe"), ptr("bad_footer")
			})
	addTarget(t, p, "blobs:attachments", "s3://attachments/", reconcile.StateIncomplete, func(r *reconcile.TargetResult) {
		r.Kind, r.Reason, r.Checked = "blobs", ptr(reconcile.ReasonThrottled), 9
	}).
		find(reconcile.Reference{Role: reconcile.RoleBlob, Path: "x/ü.bin", Record: "rec-4711", Size: 5, PhysicalRows: -1, LiveRows: -1}, reconcile.Undecided,
			func(f *reconcile.Finding) { f.Reason = ptr(reconcile.ReasonThrottled) }).
		// Null and zero must stay apart.
		find(reconcile.Reference{Role: reconcile.RoleData, Path: "z", HasFragment: true, PhysicalRows: 0, LiveRows: 0, Version: 1}, reconcile.Missing)
	p.Posts = []reconcile.PostOutcome{{RepairID: "r-1", Target: "exp-1", Store: "rocketkeep", URL: "http://master:8090/api/v1/tasks", State: "open", Attempts: 4,
		Status: reconcile.Ptr(int64(503)), Error: reconcile.Ptr("answered 503")}}
	p.Merges = []reconcile.MergeOutcome{
		{Target: "exp-1", Store: "rocketkeep", Endpoint: "http://worker-0:3000", Status: reconcile.Ptr(int64(200)), Reclaimed: reconcile.Ptr(int64(8)), DurationMS: 1200},
		{Target: "exp-1", Store: "rocketkeep", Endpoint: "http://worker-1:3000", Error: reconcile.Ptr("no answer within 10m"), DurationMS: 600000},
	}
	p.Repairs = []reconcile.RepairOutcome{
		{RepairID: "r-1", Target: "generic:orders", Store: "rocketkeep", Action: reconcile.ActionDropFragment, State: "applied", Trigger: "failure", TriggerError: ptr("Object at location x not found"),
			ReadVersion: ptr(uint64(117)), CommittedVersion: ptr(uint64(118)), TransactionUUID: ptr("5f0c"), RowsDropped: ptr(int64(0)), BytesRestored: ptr(int64(0)),
			Fragments: []reconcile.RepairFragment{{ID: 0, PhysicalRows: ptr(int64(0)), LiveRows: ptr(int64(0)), MissingFiles: []string{"data/a.lance", "data/b.lance"}}, {ID: 9}}},
		{RepairID: "r-2", Target: "generic:orders", Store: "rocketkeep", Action: reconcile.ActionRestore, State: "failed", Trigger: "manual", Source: ptr("version abc"), Error: ptr("HTTP 500"), Files: []string{"data/y.lance"}},
		{RepairID: "r-3", Target: "generic:orders", Store: "rocketkeep", Action: reconcile.ActionRefetch, State: "applied", Trigger: "schedule", ReadVersion: ptr(uint64(117)),
			BytesRestored: ptr(int64(12_345)), Source: ptr("s3://dr/"), Proof: ptr("size, footer, rows"), DurationMS: ptr(int64(0)), Files: []string{"data/w.lance"}},
	}
	return finish(p, reconcile.ExitIncomplete)
}

func fileSize(tb testing.TB, path string) int64 {
	tb.Helper()
	st, err := os.Stat(path)
	if err != nil {
		tb.Fatal(err)
	}
	return st.Size()
}
