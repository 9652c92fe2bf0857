package e2e

import (
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/rocketkeep/reconcile/internal/servertest"
	"github.com/rocketkeep/reconcile/reconcile"
)

// lostRecord is the last resort on stderr when the ledger was lost after an effect.
type lostRecord struct {
	Level  string `json:"level"`
	Repair struct {
		RepairID         string            `json:"repair_id"`
		State            string            `json:"state"`
		TransactionUUID  string            `json:"transaction_uuid"`
		ReadVersion      uint64            `json:"read_version"`
		CommittedVersion *uint64           `json:"committed_version"`
		RowsDropped      *int64            `json:"rows_dropped"`
		Messages         map[string]string `json:"messages"`
		Manifest         struct {
			Name  string `json:"name"`
			Bytes string `json:"bytes"`
		} `json:"manifest"`
		Fragments []struct {
			ID uint64 `json:"id"`
		} `json:"fragments"`
	} `json:"repair"`
}

// lostRecords are those among the lines of stderr.
func lostRecords(t *testing.T, stderr string) []lostRecord {
	t.Helper()
	var out []lostRecord
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var r lostRecord
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Errorf("%v in %s", err, clip(line))
			continue
		}
		out = append(out, r)
	}
	return out
}

// Postgres goes away between the commit and its record: the record is on stderr and in
// the reports, and the next pass settles it.
func TestAPostgresThatGoesAwayAfterTheCommitLosesNoRecord(t *testing.T) {
	long(t)
	t.Parallel()
	pg := servertest.NewPostgres(t)
	x := newScene(t)
	x.database = pg.URL("postgres")
	run(t, nil, "migrate", "up", "--database", x.database).exit(reconcile.ExitClean)
	reports := t.TempDir()
	reached, letGo := x.w.hold(stop{call.manifest, false})
	defer letGo(false)
	p := x.start("--report", reports)
	await(t, reached, p)
	pg.Stop()
	letGo(true)
	r := p.ended(90 * time.Second).exit(reconcile.ExitCommitFailed)
	if got := outcome(r.pass()); len(got.repairs) != 1 || got.repairs[0] != "drop_fragment applied" || got.reason != "not_recorded" {
		t.Errorf("%+v", got)
	}
	recs := lostRecords(t, r.stderr)
	if len(recs) != 1 {
		t.Fatalf("%d records on stderr\n%s", len(recs), clip(r.stderr))
	}
	rec := recs[0].Repair
	if m, err := base64.StdEncoding.DecodeString(rec.Manifest.Bytes); err != nil || len(m) == 0 || recs[0].Level != "WARN" {
		t.Errorf("level %s, manifest of %d bytes: %v", recs[0].Level, len(m), err)
	}
	if rec.State != "applied" || rec.TransactionUUID == "" || rec.ReadVersion != 3 || rec.CommittedVersion == nil || *rec.CommittedVersion != 4 ||
		rec.RowsDropped == nil || *rec.RowsDropped != 3 || len(rec.Fragments) != 1 || rec.Fragments[0].ID != victim || rec.Messages["1"] == "" {
		t.Errorf("the record is not whole: %+v", rec)
	}
	files, err := filepath.Glob(filepath.Join(reports, "report=repairs", "*", "*", "*.parquet"))
	if err != nil || len(files) != 1 {
		t.Fatalf("reports of repairs: %v, %v", files, err)
	}
	type row struct {
		RepairID string `parquet:"repair_id"`
		State    string `parquet:"state"`
	}
	if rows, err := parquet.ReadFile[row](files[0]); err != nil || len(rows) != 1 || rows[0] != (row{rec.RepairID, "applied"}) {
		t.Errorf("the report: %v, %v", rows, err)
	}

	pg.Start(t)
	expireLeases(t, x.database)
	next := x.repair().exit(reconcile.ExitClean)
	if got := outcome(next.pass()); len(got.repairs) != 1 || got.repairs[0] != "drop_fragment applied" {
		t.Errorf("the next pass: %+v", got)
	}
	x.settledOnce()
	x.readable()
}

// Postgres goes away before anything was intended: nothing is done.
func TestAPostgresThatGoesAwayBeforeTheCommitStopsIt(t *testing.T) {
	long(t)
	t.Parallel()
	pg := servertest.NewPostgres(t)
	x := newScene(t)
	x.database = pg.URL("postgres")
	run(t, nil, "migrate", "up", "--database", x.database).exit(reconcile.ExitClean)
	// The first look is over, and the lost object was asked for.
	reached, letGo := x.w.hold(stop{func(c call) bool { return c.key == "r/"+".reconcile-probe" }, false})
	defer letGo(false)
	p := x.start()
	await(t, reached, p)
	pg.Stop()
	letGo(true)
	r := p.ended(90 * time.Second).exit(reconcile.ExitFailed)
	if n := len(lostRecords(t, r.stderr)); n > 0 {
		t.Errorf("%d records of repairs that were not made", n)
	}
	for _, c := range x.w.calls() {
		if c.write > 0 && c.key != "r/.reconcile-probe" {
			t.Errorf("it wrote %v", c)
		}
	}
	x.s.ClearLog()
	x.repair().exit(reconcile.ExitFailed) // unreachable from the start
	if w := x.s.Writes(); len(w) > 0 {
		t.Errorf("it wrote %v", w)
	}
	pg.Start(t)
	expireLeases(t, x.database)
	x.repair().exit(reconcile.ExitClean)
	x.settledOnce()
}

// Two processes at once, one ledger of either kind: one repair.
func TestTwoProcessesMakeOneRepair(t *testing.T) {
	long(t)
	t.Parallel()
	for name, url := range ledgers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newScene(t)
			if u := url(t); u != "" {
				x.database = u
			} else {
				x.repair("--mode", "off") // makes the file
			}
			// The first holds the lock, and has intended nothing, while the second comes to it.
			reached, letGo := x.w.hold(stop{func(c call) bool { return c.write == 1 }, false})
			defer letGo(false)
			p := x.start()
			await(t, reached, p)
			if got := outcome(x.repair().exit(reconcile.ExitLocked).pass()); got.state != "locked" || len(got.repairs) != 0 {
				t.Errorf("the second: %+v", got)
			}
			letGo(true)
			if got := outcome(p.ended(time.Minute).exit(reconcile.ExitClean).pass()); got.state != "repaired" {
				t.Errorf("the first: %+v", got)
			}
			x.settledOnce()
		})
	}
}

// One process is stopped while its transaction is on its way, past its lease; another
// takes the lock and repairs. Back at work, the first drops nothing and overwrites no
// record. The lease is made to run out in the ledger: nothing shortens it otherwise.
func TestAProcessThatWasPausedPastItsLeaseDoesNothingMore(t *testing.T) {
	long(t)
	t.Parallel()
	for name, url := range ledgers(t) {
		for _, at := range []struct {
			name string
			stop stop
			// made: the paused one had made the repair; the other only found that out.
			made bool
		}{
			{"before the transaction", stop{call.transaction, false}, false},
			{"after the transaction", stop{call.transaction, true}, false},
			{"after the manifest", stop{call.manifest, true}, true},
		} {
			t.Run(name+" "+at.name, func(t *testing.T) {
				t.Parallel()
				x := newScene(t)
				if u := url(t); u != "" {
					x.database = u
				}
				reached, letGo := x.w.hold(at.stop)
				defer letGo(false)
				p := x.start()
				await(t, reached, p)
				p.signal(syscall.SIGSTOP)
				expireLeases(t, x.database)
				r := x.repair().exit(reconcile.ExitClean)
				if got := outcome(r.pass()); got.state != map[bool]string{true: "clean", false: "repaired"}[at.made] {
					t.Errorf("the other: %+v\n%s", got, clip(r.stderr))
				}
				letGo(true)
				p.signal(syscall.SIGCONT)
				first := p.ended(2 * time.Minute)
				got, last := outcome(first.pass()), lostRecords(t, first.stderr)
				if at.made {
					first.exit(reconcile.ExitCommitFailed)
					if got.reason != "not_recorded" || len(last) != 1 || last[0].Repair.State != "applied" {
						t.Errorf("the paused one: %+v, last resort %+v", got, last)
					}
				} else {
					first.exit(reconcile.ExitLocked)
					if got.state != "locked" || got.reason != "lock_lost" || len(last) != 0 {
						t.Errorf("the paused one: %+v, last resort %+v", got, last)
					}
				}
				x.settledOnce()
				x.readable()
			})
		}
	}
}
