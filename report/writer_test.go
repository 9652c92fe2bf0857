package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/rocketkeep/reconcile/internal/objstore"
	"github.com/rocketkeep/reconcile/reconcile"
)

func TestFilesAreCreatedOnceInOrderAndTheMarkersLast(t *testing.T) {
	t.Parallel()
	s := newDirStore(t)
	w := newTestWriter(t, s, func(o *Options) { o.References = true })
	uri := writePass(t, w, fullPass(t))
	golden(t, "testdata/layout.golden", []byte(strings.Join(s.keys, "\n")+"\n"))
	if want := "mem://ops/" + s.keys[0]; uri != want || w.URI() != want {
		t.Errorf("report URI %q, want the findings file %q", uri, want)
	}
}

func TestRowsAndSchemasAreAsAgreed(t *testing.T) {
	t.Parallel()
	s := newDirStore(t)
	w := newTestWriter(t, s, func(o *Options) { o.References = true })
	p := fullPass(t)
	refs := []CheckedReference{
		{Target: "generic:orders", Store: "rocketkeep", Role: reconcile.RoleData, Path: "data/x.lance", URL: "s3://rocketkeep/x", Version: 118, FragmentID: ptr(uint64(0)),
			ExpectedSize: ptr(int64(7)), ObservedSize: ptr(int64(7)), Verdict: reconcile.Present, HTTPStatus: ptr(200)},
		{Target: "blobs:attachments", Store: "rocketkeep", Role: reconcile.RoleBlob, Path: "b", URL: "s3://attachments/b"},
	}
	if err := w.References(t.Context(), refs); err != nil {
		t.Fatal(err)
	}
	writePass(t, w, p)

	var rows, schemas bytes.Buffer
	enc := json.NewEncoder(&rows)
	enc.SetEscapeHTML(false)
	for _, kind := range Kinds() {
		schemas.WriteString(readSchema(t, s.part(kind)) + "\n")
		for _, r := range readRows(t, kind, s.part(kind)) {
			if err := enc.Encode(map[string]any{"report": kind, "row": r}); err != nil {
				t.Fatal(err)
			}
		}
	}
	golden(t, "testdata/schema.golden", schemas.Bytes())
	golden(t, "testdata/rows.jsonl", rows.Bytes())
}

func readSchema(t *testing.T, path string) string {
	t.Helper()
	f := openParquet(t, path)
	return f.Schema().String()
}

func openParquet(t *testing.T, path string) *parquet.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	pf, err := parquet.OpenFile(f, st.Size())
	if err != nil {
		t.Fatal(err)
	}
	return pf
}

// readRows reads a report by the names in the file, not by our row types.
func readRows(t *testing.T, kind, path string) []map[string]any {
	t.Helper()
	f := openParquet(t, path)
	rows := make([]parquet.Row, f.NumRows())
	var all []map[string]any
	for _, g := range f.RowGroups() {
		r := g.Rows()
		n, err := r.ReadRows(rows)
		if n != int(g.NumRows()) {
			t.Fatalf("%s: %d rows read of %d: %v", path, n, g.NumRows(), err)
		}
		for _, row := range rows[:n] {
			all = append(all, rowMap(f.Schema(), Schema(kind), row))
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func rowMap(s *parquet.Schema, cols []Column, row parquet.Row) map[string]any {
	m := map[string]any{}
	leaves := s.Columns()
	for _, v := range row {
		name := leaves[v.Column()][0]
		var col Column
		for _, c := range cols {
			if c.Name == name {
				col = c
			}
		}
		var val any
		if !v.IsNull() {
			switch v.Kind() {
			case parquet.ByteArray:
				val = v.String()
			case parquet.Double:
				val = v.Double()
			case parquet.Int32:
				val = v.Int32()
			default:
				val = v.Int64()
			}
		}
		if !strings.HasSuffix(col.Type, "[]") {
			m[name] = val
			continue
		}
		if m[name] == nil {
			m[name] = []any{}
		}
		if v.DefinitionLevel() > 0 { // 0: an empty list
			m[name] = append(m[name].([]any), val)
		}
	}
	return m
}

func TestACleanPassWritesItsEmptyFindingsWithSchema(t *testing.T) {
	t.Parallel()
	s := newDirStore(t)
	writePass(t, newTestWriter(t, s), cleanPass(t))
	f := openParquet(t, s.part(KindFindings))
	if f.NumRows() != 0 || len(f.Schema().Fields()) != len(Schema(KindFindings)) {
		t.Errorf("%d rows and %d columns, want 0 and %d", f.NumRows(), len(f.Schema().Fields()), len(Schema(KindFindings)))
	}
	if _, err := os.Stat(s.part(KindReferences)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("references were not asked for: %v", err)
	}
}

func TestASecondReportOfThePassIsRefusedAndTouchesNothing(t *testing.T) {
	t.Parallel()
	s := newDirStore(t)
	writePass(t, newTestWriter(t, s), cleanPass(t))
	before, err := os.ReadFile(s.part(KindPasses))
	if err != nil {
		t.Fatal(err)
	}
	w := newTestWriter(t, s)
	p := emptyPass()
	_, err = w.Upload(t.Context(), finish(p, reconcile.ExitClean))
	if !errors.Is(err, ErrExists) || !errors.Is(err, objstore.ErrExist) || !strings.Contains(err.Error(), "report=findings/") {
		t.Errorf("error %v, want ErrExists with the place", err)
	}
	if err := w.Succeed(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("a failed upload was marked complete: %v", err)
	}
	after, err := os.ReadFile(s.part(KindPasses))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the first report changed (%v)", err)
	}
}

func TestRowsThatAreNotThoseOfTheDocumentAreNotUploaded(t *testing.T) {
	t.Parallel()
	full := fullPass(t)
	truncated := full
	truncated.Findings, truncated.FindingsTruncated = full.Findings[:1], true
	other := full
	other.PassID = "0198c0de-7a11-7000-8000-000000000002"
	fewer := full
	fewer.Targets = full.Targets[:1]
	for _, c := range []struct {
		name     string
		findings []reconcile.Finding
		pass     reconcile.Pass
		want     error
	}{
		{"the same findings are uploaded", full.Findings, full, nil},
		{"a document that holds only the first findings is fine", full.Findings, truncated, nil},
		{"a finding too few in the file", full.Findings[1:], full, ErrCount},
		{"a finding too few in the document", full.Findings, func() reconcile.Pass { p := full; p.Findings = p.Findings[1:]; return p }(), ErrCount},
		{"fewer in the file than a truncated document holds", nil, truncated, ErrCount},
		{"a target too few", full.Findings, fewer, ErrCount},
		{"another pass", full.Findings, other, ErrCount},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newDirStore(t)
			w := newTestWriter(t, s)
			if err := w.Findings(t.Context(), c.findings); err != nil {
				t.Fatal(err)
			}
			for _, r := range full.Targets {
				if err := w.Target(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			for _, r := range full.Repairs {
				if err := w.Repair(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.Upload(t.Context(), c.pass); !errors.Is(err, c.want) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if c.want != nil && len(s.keys) > 0 {
				t.Errorf("uploaded %v", s.keys)
			}
		})
	}
}

func TestTemporaryFilesAreRemovedHoweverItEnds(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, c := range []struct {
		name string
		end  func(t *testing.T, w *Writer, s *dirStore)
	}{
		{"uploaded", func(t *testing.T, w *Writer, _ *dirStore) {
			if _, err := w.Upload(t.Context(), finish(emptyPass(), 0)); err != nil {
				t.Error(err)
			}
		}},
		{"aborted, twice", func(_ *testing.T, w *Writer, _ *dirStore) { w.Abort(); w.Abort() }},
		{"store failed, then aborted", func(t *testing.T, w *Writer, s *dirStore) {
			s.fail = func(l objstore.Location) error {
				if strings.Contains(l.Key, "report=targets") {
					return boom
				}
				return nil
			}
			if _, err := w.Upload(t.Context(), finish(emptyPass(), 0)); !errors.Is(err, boom) {
				t.Errorf("error %v, want boom", err)
			}
			w.Abort()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, tmp := newDirStore(t), t.TempDir()
			w := newTestWriter(t, s, func(o *Options) { o.TempDir = tmp })
			if left, _ := filepath.Glob(tmp + "/*/*"); len(left) == 0 {
				t.Fatal("no temporary files where they were asked for")
			}
			c.end(t, w, s)
			if left, _ := filepath.Glob(tmp + "/*"); len(left) > 0 {
				t.Errorf("left on disk: %v", left)
			}
			if err := w.Findings(t.Context(), nil); !errors.Is(err, ErrClosed) {
				t.Errorf("a closed report took rows: %v", err)
			}
		})
	}
}

func TestACancelledContextBeginsNoUpload(t *testing.T) {
	t.Parallel()
	s := newDirStore(t)
	w := newTestWriter(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	s.fail = func(l objstore.Location) error {
		cancel() // while the first file is on its way
		return nil
	}
	if _, err := w.Upload(ctx, finish(emptyPass(), 0)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want cancelled", err)
	}
	if len(s.keys) != 1 {
		t.Errorf("created %v after the cancel", s.keys)
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		mod  func(*Options)
	}{
		{"no store", func(o *Options) { o.Store = nil }},
		{"no base", func(o *Options) { o.Base = objstore.Location{} }},
		{"no date", func(o *Options) { o.PassDate = time.Time{} }},
		{"a pass id that would leave its folder", func(o *Options) { o.PassID = "../x" }},
		{"a pass id in another spelling", func(o *Options) { o.PassID = strings.ToUpper(passID) }},
		{"a temporary folder that is not there", func(o *Options) { o.TempDir = filepath.Join(o.TempDir, "no") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newDirStore(t)
			opts := Options{Store: s, Base: s.base(), PassID: passID, PassDate: start, TempDir: t.TempDir()}
			c.mod(&opts)
			if _, err := NewWriter(t.Context(), opts); err == nil {
				t.Error("no error")
			}
		})
	}
}

func TestRowsMayComeFromManyGoroutines(t *testing.T) {
	t.Parallel()
	s := newDirStore(t)
	w := newTestWriter(t, s)
	p := fullPass(t)
	one := p.Findings[:1]
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if err := w.Findings(t.Context(), one); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	out := emptyPass()
	out.FindingsTruncated = true
	if _, err := w.Upload(t.Context(), finish(out, 0)); err != nil {
		t.Fatal(err)
	}
	if n := openParquet(t, s.part(KindFindings)).NumRows(); n != 400 {
		t.Errorf("%d rows, want 400", n)
	}
}

func TestNumbersThatDoNotFitAndVersionsThatAreNoneAreNull(t *testing.T) {
	t.Parallel()
	f := toFindingRow(reconcile.Finding{Version: 0, FragmentID: ptr(uint64(math.MaxUint64))})
	if f.Version != nil || f.FragmentID != nil {
		t.Errorf("version %v, fragment %v; want null", f.Version, f.FragmentID)
	}
	g := toFindingRow(reconcile.Finding{Version: math.MaxInt64, FragmentID: ptr(uint64(0))})
	if g.Version == nil || *g.Version != math.MaxInt64 || g.FragmentID == nil || *g.FragmentID != 0 {
		t.Errorf("version %v, fragment %v; want the largest number and 0", g.Version, g.FragmentID)
	}
	if d := cmp.Diff([]string{"a\uFFFDb"}, cleanAll([]string{"a\xffb"})); d != "" {
		t.Error(d)
	}
}

func TestEveryReportHasStoreAndTarget(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds() {
		names := map[string]bool{}
		for _, c := range Schema(kind) {
			names[c.Name] = true
			if c.Doc == "" {
				t.Errorf("%s.%s has no line in the data dictionary", kind, c.Name)
			}
		}
		if kind != KindPasses && (!names["store"] || !names["target"]) {
			t.Errorf("%s names no store or no target", kind)
		}
		for _, partition := range []string{"report", "pass_date", "pass_id"} {
			if names[partition] {
				t.Errorf("%s repeats the partition column %s", kind, partition)
			}
		}
		if !names["schema_version"] {
			t.Errorf("%s has no schema_version", kind)
		}
	}
}
