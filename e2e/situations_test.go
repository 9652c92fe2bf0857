package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/reconcile"
)

// fourFragments is a table of four fragments of ten rows by a recent writer.
func fourFragments() *lancetest.Builder {
	b := lancetest.New().Version(3).WriterVersion("lance", "12.0.0")
	for range 4 {
		b.Fragment(10)
	}
	return b
}

func put(t *testing.T, s *servertest.Server, root string, b *lancetest.Builder, damages ...lancetest.Damage) {
	b.WriteTo(func(name string, data []byte) { s.Put(t, root+"/"+name, data) }, damages...)
}

// look is a check with no patience: a second between the looks, no age protection.
func look(extra ...string) []string {
	return append([]string{"check", "--output", "json", "--min-manifest-age", "0s", "--confirm-after", "1s", "--request-timeout", "1s"}, extra...)
}

// Every row of the situation table that needs no repair: what storage does, what
// the program says, how it ends.
func TestSituations(t *testing.T) {
	t.Parallel()
	b := fourFragments()
	one := b.DataName(1, 0)
	type want struct {
		exit     reconcile.ExitCode
		state    string // of the target table:t, or of the only target
		reason   string
		findings []string
		flapped  float64
	}
	data := func(verdict string) []string { return []string{"table:t data " + verdict + " " + one} }
	cases := []struct {
		name  string
		setup func(t *testing.T, s *servertest.Server)
		uri   string
		args  []string
		want  want
	}{
		{"a healthy table", func(t *testing.T, s *servertest.Server) { put(t, s, "r/t.lance", b) }, "r", nil, want{0, "clean", "", nil, 0}},
		{"the bucket is absent", func(*testing.T, *servertest.Server) {}, "!nowhere/r", nil, want{1, "failed", "no_such_bucket", []string{"s3://nowhere/r manifest undecided "}, 0}},
		{"nothing below the prefix", func(t *testing.T, s *servertest.Server) { put(t, s, "r/t.lance", b) }, "wrong", nil, want{1, "", "", nil, 0}},
		{"403 on everything", func(t *testing.T, s *servertest.Server) { put(t, s, "r/t.lance", b); s.DenyAll() }, "r", nil,
			want{4, "incomplete", "access_denied", []string{"s3://BUCKET/r manifest denied "}, 0}},
		{"403 on everything of a table named itself", func(t *testing.T, s *servertest.Server) { put(t, s, "r/t.lance", b); s.DenyAll() }, "r/t.lance", nil,
			want{4, "incomplete", "access_denied", []string{"table:t manifest denied _versions/"}, 0}},
		{"403 on one key", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b)
			s.Add(servertest.Rule{Key: one, Status: 403, Code: "AccessDenied"})
		}, "r", nil, want{4, "incomplete", "access_denied", data("denied"), 0}},
		{"a key that answers 500 for ever", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b)
			s.Add(servertest.Rule{Key: one, Status: 500, Code: "InternalError"})
		}, "r", nil, want{4, "incomplete", "server_error", data("undecided"), 0}},
		{"a key that is throttled for ever", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b)
			s.Add(servertest.Rule{Key: one, Status: 503, Code: "SlowDown"})
		}, "r", nil, want{4, "incomplete", "throttled", data("undecided"), 0}},
		{"a key that answers 500 once", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b)
			s.Add(servertest.Rule{Key: one, Count: 1, Status: 500, Code: "InternalError"})
		}, "r", nil, want{0, "clean", "", nil, 0}},
		{"a key that hangs for ever", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b)
			s.Add(servertest.Rule{Key: one, Hang: true})
		}, "r", nil, want{4, "incomplete", "timeout", data("undecided"), 0}},
		{"a key whose connection is dropped", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b)
			s.Add(servertest.Rule{Key: one, Drop: true})
		}, "r", nil, want{4, "incomplete", "no_answer", data("undecided"), 0}},
		{"404 and then 200", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b)
			s.Add(servertest.Rule{Op: "HEAD", Key: one, Count: 1, Status: 404})
		}, "r", nil, want{0, "clean", "", nil, 1}},
		{"a file that is gone", func(t *testing.T, s *servertest.Server) { put(t, s, "r/t.lance", b, lancetest.Missing(one)) }, "r", nil,
			want{3, "diverged", "", data("missing"), 0}},
		{"a HEAD without Content-Length", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b)
			s.Add(servertest.Rule{Op: "HEAD", Key: one, NoContentLength: true})
		}, "r", nil, want{4, "incomplete", "no_content_length", data("undecided"), 0}},
		{"all data files gone", func(t *testing.T, s *servertest.Server) { put(t, s, "r/t.lance", b, lancetest.Missing("data/*")) }, "r", nil,
			want{3, "diverged", "everything_missing", []string{"table:t data missing " + b.DataName(0, 0), "table:t data missing " + one, "table:t data missing " + b.DataName(2, 0), "table:t data missing " + b.DataName(3, 0)}, 0}},
		{"the newest manifest is cut short", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b, lancetest.Truncate(b.ManifestName(), 100))
		}, "r", nil, want{4, "unreadable", "bad_manifest", []string{"table:t manifest unreadable " + b.ManifestName()}, 0}},
		{"the newest manifest is empty", func(t *testing.T, s *servertest.Server) { put(t, s, "r/t.lance", b, lancetest.Empty(b.ManifestName())) }, "r", nil,
			want{4, "unreadable", "bad_manifest", []string{"table:t manifest unreadable " + b.ManifestName()}, 0}},
		{"the newest manifest arrives cut short once", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b)
			s.Add(servertest.Rule{Op: "GET", Key: b.ManifestName(), Count: 1, Cut: 50})
		}, "r", nil, want{0, "clean", "", nil, 0}},
		{"the newest manifest answers 500 and then comes cut short", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b)
			put(t, s, "r/u.lance", b)
			s.Add(servertest.Rule{Op: "GET", Key: "t.lance/" + b.ManifestName(), Count: 1, Status: 500, Code: "InternalError"},
				servertest.Rule{Op: "GET", Key: "t.lance/" + b.ManifestName(), Cut: 50})
		}, "r", nil, want{4, "incomplete", "no_answer", []string{"table:t manifest undecided " + b.ManifestName()}, 0}},
		{"an unknown reader flag", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", fourFragments().Flags(512, 512), lancetest.Missing(one))
		}, "r", nil,
			want{4, "unreadable", "unknown_reader_flags", nil, 0}},
		{"an unknown writer flag", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", fourFragments().Flags(0, 1024), lancetest.Missing(one))
		}, "r", nil,
			want{3, "diverged", "", data("missing"), 0}},
		{"a base path without access", func(t *testing.T, s *servertest.Server) {
			far := lancetest.New().Base(1, "s3://"+s.Bucket+"/far.lance", true).Fragment(10).Fragment(10, lancetest.File{Path: "f.lance", BaseID: lancetest.ID(1)})
			put(t, s, "r/t.lance", far)
			s.Add(servertest.Rule{Key: "far.lance", Status: 403, Code: "AccessDenied"})
		}, "r", nil, want{4, "incomplete", "access_denied", []string{"table:t data denied data/f.lance"}, 0}},
		{"an unknown base id", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", lancetest.New().Fragment(10).Fragment(10, lancetest.File{Path: "f.lance", BaseID: lancetest.ID(9)}))
		}, "r", nil, want{4, "incomplete", "unknown_base", []string{"table:t data undecided data/f.lance"}, 0}},
		{"a half-deleted table beside a healthy one", func(t *testing.T, s *servertest.Server) {
			s.Put(t, "r/t.lance/data/x.lance", []byte("x"))
			put(t, s, "r/u.lance", b)
		}, "r", nil, want{4, "half_deleted", "no manifest, 1 objects", nil, 0}},
		{"a young manifest on a new table", func(t *testing.T, s *servertest.Server) { put(t, s, "r/t.lance", b, lancetest.Missing(one)) }, "r",
			[]string{"--min-manifest-age", "1h"}, want{4, "pending", "", data("pending"), 0}},
		{"a rolled-back table", func(t *testing.T, s *servertest.Server) { put(t, s, "r/t.lance", fourFragments().Tag("v9", 9)) }, "r", nil,
			want{3, "rolled_back", "tag v9 names version 9, the newest manifest is 3", nil, 0}},
		{"only a trace of a higher version", func(t *testing.T, s *servertest.Server) { put(t, s, "r/t.lance", fourFragments().Hint(9)) }, "r", nil,
			want{4, "incomplete", "higher_version_trace", []string{"table:t manifest undecided _versions/latest_version_hint.json"}, 0}},
		{"the transaction file is gone", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b, lancetest.Missing("_transactions/"+b.TransactionName()))
		}, "r", nil, want{0, "clean", "", []string{"table:t transaction missing _transactions/" + b.TransactionName()}, 0}},
		{"the bucket vanishes between the looks", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b, lancetest.Missing(one))
			s.Add(servertest.Rule{Op: "GET", Key: one, Status: 404, Code: "NoSuchBucket"})
		}, "r", nil, want{4, "incomplete", "no_such_bucket", data("undecided"), 0}},
		{"HEAD says no and GET reads it", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b)
			s.Add(servertest.Rule{Op: "HEAD", Key: one, Status: 404})
		}, "r", nil, want{4, "incomplete", "contradiction", data("undecided"), 0}},
		{"a HEAD that answers 204", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b)
			s.Add(servertest.Rule{Op: "HEAD", Key: one, Status: 204})
		}, "r", nil, want{4, "incomplete", "no_answer", data("undecided"), 0}},
		{"a HEAD whose length is not the object's", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b)
			s.Add(servertest.Rule{Op: "HEAD", Key: one, Header: map[string]string{"Content-Length": "100"}})
		}, "r", nil, want{4, "incomplete", "contradiction", data("undecided"), 0}},
		{"a store that answers for every key", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b, lancetest.Missing(one))
			s.Add(servertest.Rule{Key: ".reconcile-control-", Status: 200, Header: map[string]string{"Content-Length": "0"}})
		}, "r", nil, want{4, "incomplete", "controls_failed", data("undecided"), 0}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := servertest.S3(t)
			c.setup(t, s)
			s.ClearLog()
			uri, foreign := strings.CutPrefix(c.uri, "!")
			if !foreign {
				uri = s.Bucket + "/" + c.uri
			}
			d := run(t, s.Env(), look(append(c.args, "s3://"+uri)...)...).exit(c.want.exit).pass()
			got := want{exit: reconcile.ExitCode(d.Exit.Code), findings: d.brief(), flapped: d.Totals["flapped"].(float64)}
			for i, f := range got.findings {
				got.findings[i] = strings.ReplaceAll(f, s.Bucket, "BUCKET")
			}
			if len(got.findings) == 0 {
				got.findings = nil
			}
			slices.Sort(got.findings)
			for _, tg := range d.Targets {
				if tg.Target == "table:t" || len(d.Targets) == 1 {
					got.state, got.reason = tg.State, text(tg.Reason)
				} else if tg.State != "clean" || tg.Checked != tg.References {
					t.Errorf("the healthy neighbour %s is %s, %d of %d checked", tg.Target, tg.State, tg.Checked, tg.References)
				}
			}
			if d := cmp.Diff(c.want, got, cmp.AllowUnexported(want{})); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
			if w := s.Writes(); len(w) > 0 {
				t.Errorf("a look wrote: %v", w)
			}
		})
	}
}

// One sick target never holds up the others: a table whose keys all hang, beside
// twenty healthy ones.
func TestAHangingTableHoldsNobodyUp(t *testing.T) {
	long(t)
	t.Parallel()
	s := servertest.S3(t)
	for i := range 20 {
		put(t, s, fmt.Sprintf("r/t%02d.lance", i), fourFragments())
	}
	sick := lancetest.New()
	for range 40 {
		sick.Fragment(10)
	}
	put(t, s, "r/sick.lance", sick)
	s.Add(servertest.Rule{Op: "HEAD", Key: "r/sick.lance/data/*", Hang: true})
	r := run(t, s.Env(), look("--concurrency", "8", "--request-timeout", "300ms", "s3://"+s.Bucket+"/r")...).exit(reconcile.ExitIncomplete)
	d := r.pass()
	clean := 0
	for _, tg := range d.Targets {
		if tg.State == "clean" && tg.Checked == tg.References {
			clean++
		}
	}
	if clean != 20 || len(d.Targets) != 21 {
		t.Errorf("%d of 20 healthy tables are clean, %d targets", clean, len(d.Targets))
	}
	if r.took > time.Minute {
		t.Errorf("took %v", r.took)
	}
}
