package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rocketkeep/reconcile/internal/lancetest"
	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/reconcile"
)

// repairNow is a repair with no patience: a second between the looks, no age
// protection.
func repairNow(extra ...string) []string {
	return append([]string{"repair", "--output", "json", "--min-manifest-age", "0s", "--confirm-after", "1s", "--request-timeout", "1s"}, extra...)
}

// denied is the case in which not even the test may list.
const denied = "403 on everything"

// repaired is what a repair of one table came to.
type repaired struct {
	exit   reconcile.ExitCode
	state  string
	reason string
	// blocked are the words of all findings, sorted.
	blocked []string
	// repairs are "action state" in order.
	repairs []string
}

func outcome(d document) repaired {
	got := repaired{exit: reconcile.ExitCode(d.Exit.Code)}
	for _, tg := range d.Targets {
		if tg.Target == "table:t" || len(d.Targets) == 1 {
			got.state, got.reason = tg.State, text(tg.Reason)
		}
	}
	for _, f := range d.Findings {
		for _, b := range f.BlockedBy {
			if !slices.Contains(got.blocked, b) {
				got.blocked = append(got.blocked, b)
			}
		}
	}
	slices.Sort(got.blocked)
	for _, r := range d.Repairs {
		got.repairs = append(got.repairs, fmt.Sprint(r["action"], " ", r["state"]))
	}
	return got
}

// manifests counts the versions of a table.
func manifests(t *testing.T, s *servertest.Server, table string) int {
	t.Helper()
	n := 0
	for _, k := range s.Keys(t, table+"/_versions/") {
		if strings.HasSuffix(k, ".manifest") {
			n++
		}
	}
	return n
}

// Every row of the situation table where a repair is asked for: what storage does,
// what becomes of the table, how the program ends. Only where a repair is applied is
// anything written to the table.
func TestRepairSituations(t *testing.T) {
	t.Parallel()
	b := fourFragments()
	one, two := b.DataName(1, 0), b.DataName(2, 0)
	gone := func(damages ...lancetest.Damage) func(*testing.T, *servertest.Server) {
		return func(t *testing.T, s *servertest.Server) { put(t, s, "r/t.lance", b, damages...) }
	}
	with := func(setup func(*testing.T, *servertest.Server), rules ...servertest.Rule) func(*testing.T, *servertest.Server) {
		return func(t *testing.T, s *servertest.Server) { setup(t, s); s.Add(rules...) }
	}
	deleted := fourFragments().Delete(3, 1)
	indexed := fourFragments().Index("i", lancetest.IndexFile{Path: "page_data.lance"})
	parts := fourFragments()
	parts.Columns("a", "b").Fragment(10, lancetest.File{Path: "p1.lance", Fields: []int32{0}}, lancetest.File{Path: "p2.lance", Fields: []int32{1}})
	cases := []struct {
		name  string
		setup func(t *testing.T, s *servertest.Server)
		uri   string
		args  []string
		want  repaired
	}{
		{"a healthy table", gone(), "r/t.lance", nil, repaired{0, "clean", "", nil, nil}},
		{"a data file that is gone", gone(lancetest.Missing(one)), "r/t.lance", nil, repaired{0, "repaired", "", nil, []string{"drop_fragment applied"}}},
		{"two data files that are gone", gone(lancetest.Missing(one), lancetest.Missing(two)), "r/t.lance", nil, repaired{0, "repaired", "", nil, []string{"drop_fragment applied"}}},
		{"an index file that is gone", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", indexed, lancetest.Missing(indexed.IndexFolder(0)+"/page_data.lance"))
		}, "r/t.lance", nil, repaired{0, "repaired", "", nil, []string{"drop_index applied"}}},
		{"a deletion file that is gone", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", deleted, lancetest.Missing(deleted.DeletionName(3)))
		}, "r/t.lance", nil, repaired{3, "diverged", "", []string{"deletion_policy"}, nil}},
		{"a deletion file that is gone, and the policy says to drop", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", deleted, lancetest.Missing(deleted.DeletionName(3)))
		}, "r/t.lance", []string{"--deletion-files", "drop_fragment"}, repaired{0, "repaired", "", nil, []string{"drop_fragment applied"}}},
		{"nothing that loses rows is asked for", gone(lancetest.Missing(one)), "r/t.lance", []string{"--mode", "restore"}, repaired{3, "diverged", "", nil, nil}},
		{"a repair that is only shown", gone(lancetest.Missing(one)), "r/t.lance", []string{"--dry-run"}, repaired{3, "diverged", "", nil, []string{"drop_fragment planned"}}},
		{"a repair that is off", gone(lancetest.Missing(one)), "r/t.lance", []string{"--mode", "off"}, repaired{3, "diverged", "", nil, nil}},
		{"the bucket is absent", gone(), "!nowhere/t.lance", nil, repaired{1, "", "", nil, nil}},
		{"no table at the place", gone(), "r/other.lance", nil, repaired{1, "", "", nil, nil}},
		{denied, gone(lancetest.Missing(one)), "r/t.lance", nil,
			repaired{4, "incomplete", "access_denied", nil, nil}},
		{"403 on one key beside a lost one", with(gone(lancetest.Missing(one)), servertest.Rule{Key: two, Status: 403, Code: "AccessDenied"}), "r/t.lance", nil,
			repaired{5, "incomplete", "access_denied", []string{"incomplete_look"}, nil}},
		{"a key that answers 500 for ever", with(gone(), servertest.Rule{Key: two, Status: 500, Code: "InternalError"}), "r/t.lance", nil,
			repaired{4, "incomplete", "server_error", nil, nil}},
		{"a key that answers 500 beside a lost one", with(gone(lancetest.Missing(one)), servertest.Rule{Key: two, Status: 500, Code: "InternalError"}), "r/t.lance", nil,
			repaired{5, "incomplete", "server_error", []string{"incomplete_look"}, nil}},
		{"404 and then 200", with(gone(), servertest.Rule{Op: "HEAD", Key: one, Count: 1, Status: 404}), "r/t.lance", nil, repaired{0, "clean", "", nil, nil}},
		{"all data files gone", gone(lancetest.Missing("data/*")), "r/t.lance", nil, repaired{5, "refused", "everything_missing", []string{"everything_missing", "over_limit"}, nil}},
		{"all data files gone, and the table may be empty", gone(lancetest.Missing("data/*")), "r/t.lance", []string{"--allow-empty-table", "--allow-mass-drop"},
			repaired{0, "repaired", "", nil, []string{"drop_fragment applied"}}},
		{"more than the limit", gone(lancetest.Missing(one), lancetest.Missing(two)), "r/t.lance", []string{"--max-fragments", "1"},
			repaired{5, "refused", "", []string{"over_limit"}, nil}},
		{"more than the limit, which is lifted", gone(lancetest.Missing(one), lancetest.Missing(two)), "r/t.lance", []string{"--max-fragments", "1", "--allow-mass-drop"},
			repaired{0, "repaired", "", nil, []string{"drop_fragment applied"}}},
		{"the newest manifest is cut short", gone(lancetest.Truncate(b.ManifestName(), 100)), "r/t.lance", nil, repaired{4, "unreadable", "bad_manifest", nil, nil}},
		{"the newest manifest is empty", gone(lancetest.Empty(b.ManifestName())), "r/t.lance", nil, repaired{4, "unreadable", "bad_manifest", nil, nil}},
		{"an unknown reader flag", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", fourFragments().Flags(512, 512), lancetest.Missing(one))
		}, "r/t.lance", nil, repaired{4, "unreadable", "unknown_reader_flags", nil, nil}},
		{"an unknown writer flag", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", fourFragments().Flags(0, 1024), lancetest.Missing(one))
		}, "r/t.lance", nil, repaired{5, "refused", "", []string{"unknown_writer_flags"}, nil}},
		{"a writer that commits without a condition", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", fourFragments().WriterVersion("lance", "0.30.0"), lancetest.Missing(one))
		}, "r/t.lance", nil, repaired{5, "refused", "", []string{"unconditional_writer"}, nil}},
		{"a writer that commits without a condition, and has stopped", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", fourFragments().WriterVersion("lance", "0.30.0"), lancetest.Missing(one))
		}, "r/t.lance", []string{"--writers-stopped"}, repaired{0, "repaired", "", nil, []string{"drop_fragment applied"}}},
		{"a store that ignores the condition of a create", with(gone(lancetest.Missing(one)), servertest.Rule{Op: "PUT", Key: ".reconcile-probe", Status: 200}), "r/t.lance", nil,
			repaired{5, "refused", "no_conditional_put", []string{"no_conditional_put"}, []string{"drop_fragment refused"}}},
		{"a base path without access beside a lost file", func(t *testing.T, s *servertest.Server) {
			far := fourFragments().Base(1, "s3://"+s.Bucket+"/far.lance", true).Fragment(10, lancetest.File{Path: "f.lance", BaseID: lancetest.ID(1)})
			put(t, s, "r/t.lance", far, lancetest.Missing(far.DataName(1, 0)))
			s.Add(servertest.Rule{Key: "far.lance", Status: 403, Code: "AccessDenied"})
		}, "r/t.lance", nil, repaired{5, "incomplete", "access_denied", []string{"incomplete_look"}, nil}},
		{"an unknown base id", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", lancetest.New().Fragment(10).Fragment(10, lancetest.File{Path: "f.lance", BaseID: lancetest.ID(9)}))
		}, "r/t.lance", nil, repaired{4, "incomplete", "unknown_base", nil, nil}},
		{"a half-deleted table", func(t *testing.T, s *servertest.Server) { s.Put(t, "r/t.lance/data/x.lance", []byte("x")) }, "r/t.lance", nil,
			repaired{5, "half_deleted", "no manifest, 1 objects", nil, nil}},
		{"a lost file with an older version", func(t *testing.T, s *servertest.Server) {
			s.EnableVersions(t)
			put(t, s, "r/t.lance", b)
			s.Remove(t, "r/t.lance/"+one)
		}, "r/t.lance", nil, repaired{0, "repaired", "", nil, []string{"restore applied"}}},
		{"a file in an archive tier", with(gone(), servertest.Rule{Op: "HEAD", Key: one, Header: map[string]string{"X-Amz-Storage-Class": "GLACIER"}}), "r/t.lance", nil,
			repaired{3, "diverged", "", nil, nil}},
		{"versions that nobody may list", with(gone(lancetest.Missing(one)), servertest.Rule{Op: "LIST", Key: one, Status: 403, Code: "AccessDenied"}), "r/t.lance", nil,
			repaired{5, "refused", "", []string{"versions_unknown"}, nil}},
		{"a young manifest", gone(lancetest.Missing(one)), "r/t.lance", []string{"--min-manifest-age", "1h"}, repaired{4, "pending", "", nil, nil}},
		{"a rolled-back table", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", fourFragments().Tag("v9", 9), lancetest.Missing(one))
		}, "r/t.lance", nil, repaired{5, "rolled_back", "tag v9 names version 9, the newest manifest is 3", []string{"rolled_back"}, nil}},
		{"a rolled-back table that is accepted", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", fourFragments().Tag("v9", 9), lancetest.Missing(one))
		}, "r/t.lance", []string{"--accept-version", "3"}, repaired{0, "repaired", "", nil, []string{"drop_fragment applied"}}},
		{"another version is accepted than the newest", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", fourFragments().Tag("v9", 9), lancetest.Missing(one))
		}, "r/t.lance", []string{"--accept-version", "2"}, repaired{5, "rolled_back", "tag v9 names version 9, the newest manifest is 3", []string{"rolled_back"}, nil}},
		{"only a trace of a higher version", func(t *testing.T, s *servertest.Server) { put(t, s, "r/t.lance", fourFragments().Hint(9)) }, "r/t.lance", nil,
			repaired{5, "incomplete", "higher_version_trace", nil, nil}},
		{"the transaction file is gone", gone(lancetest.Missing("_transactions/" + b.TransactionName())), "r/t.lance", nil, repaired{0, "clean", "", nil, nil}},
		{"one of two files of a fragment is gone", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", parts, lancetest.Missing("data/p2.lance"))
		}, "r/t.lance", nil, repaired{0, "repaired", "", nil, []string{"drop_fragment applied"}}},
		{"a sealed shard of the write-ahead log", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", fourFragments().MemWAL(), lancetest.Missing(one))
			lancetest.Shard{Name: "a", Version: 1, Epoch: 1, Status: 1}.WriteTo(func(name string, data []byte) { s.Put(t, "r/t.lance/"+name, data) })
		}, "r/t.lance", nil, repaired{5, "refused", "", []string{"wal_sealed"}, nil}},
		{"more than one table at the place", func(t *testing.T, s *servertest.Server) {
			put(t, s, "r/t.lance", b)
			put(t, s, "r/u.lance", b)
		}, "r", nil, repaired{2, "", "", nil, nil}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := servertest.S3(t)
			c.setup(t, s)
			before := manifests(t, s, "r/t.lance")
			s.ClearLog()
			if c.name == denied {
				s.DenyAll()
			}
			uri, foreign := strings.CutPrefix(c.uri, "!")
			if !foreign {
				uri = s.Bucket + "/" + c.uri
			}
			r := run(t, s.Env(), repairNow(append(c.args, "s3://"+uri)...)...).exit(c.want.exit)
			if c.want.exit == reconcile.ExitUsage {
				r.says(r.stderr, "2 targets are meant")
				return
			}
			got := outcome(r.pass())
			if d := cmp.Diff(c.want, got, cmp.AllowUnexported(repaired{})); d != "" {
				t.Errorf("(-want +got)\n%s%s", d, clip(r.stderr))
			}
			s.ClearRules()
			applied := slices.ContainsFunc(got.repairs, func(r string) bool { return strings.HasSuffix(r, " applied") })
			want := before
			if applied && !slices.Contains(got.repairs, "restore applied") {
				want++ // bringing bytes back is no commit
			}
			if after := manifests(t, s, "r/t.lance"); after != want {
				t.Errorf("%d versions before, %d after", before, after)
			}
			for _, w := range s.Writes() {
				if w.Op == "DELETE" || !applied && !strings.HasSuffix(w.Key, ".reconcile-probe") {
					t.Errorf("it wrote: %v", w)
				}
			}
			if applied {
				if againExit(c.name) == reconcile.ExitClean {
					run(t, s.Env(), look("s3://"+uri)...).exit(reconcile.ExitClean)
				}
				again := outcome(run(t, s.Env(), repairNow(append(c.args[:0:0], "s3://"+uri)...)...).exit(againExit(c.name)).pass())
				if len(again.repairs) > 0 {
					t.Errorf("a second repair did something: %v", again.repairs)
				}
			}
		})
	}
}

// againExit is how the same repair ends when nothing is damaged any more.
func againExit(name string) reconcile.ExitCode {
	if strings.Contains(name, "that is accepted") {
		return reconcile.ExitRefused // the tag still names a version that is not there
	}
	return reconcile.ExitClean
}
