package report

import (
	"time"

	"github.com/rocketkeep/reconcile/reconcile"
)

// passRow is the pass as one row: members of totals under their own names, members
// of other objects behind the name of the object.
type passRow struct {
	SchemaVersion            int32     `parquet:"schema_version" doc:"Version of this schema; rises when a column is added."`
	Mode                     string    `parquet:"mode,dict" doc:"off (look only), restore or full."`
	ToolVersion              string    `parquet:"tool_version,dict" doc:"Version of reconcile."`
	Actor                    string    `parquet:"actor,dict" doc:"Who ran it."`
	Host                     string    `parquet:"host,dict" doc:"Where it ran."`
	Reason                   *string   `parquet:"reason,optional,plain" doc:"What the user gave as --reason; null when nothing."`
	StartedAt                time.Time `parquet:"started_at,timestamp(microsecond)" doc:"Start (UTC)."`
	FinishedAt               time.Time `parquet:"finished_at,timestamp(microsecond)" doc:"End (UTC)."`
	ExitCode                 int32     `parquet:"exit_code" doc:"Exit code of the process."`
	ExitName                 string    `parquet:"exit_name,dict" doc:"Its name."`
	ScopeVersions            string    `parquet:"scope_versions,dict" doc:"Versions looked at: current, retained or all."`
	ScopeDepth               string    `parquet:"scope_depth,dict" doc:"How closely: head, footer or checksum."`
	ScopeRoles               []string  `parquet:"scope_roles,list" parquet-element:",dict" doc:"Roles looked at; empty means every one that is built."`
	ScopeTargetsFilter       []string  `parquet:"scope_targets_filter,list" parquet-element:",dict" doc:"Target patterns asked for; empty means all."`
	CoverageReferences       int64     `parquet:"coverage_references" doc:"References that were to be looked at."`
	CoverageChecked          int64     `parquet:"coverage_checked" doc:"Those that were looked at."`
	CoverageRatio            *float64  `parquet:"coverage_ratio,optional" doc:"checked divided by references; null when there was nothing."`
	Targets                  int64     `parquet:"targets" doc:"Targets of the pass; the sum of the targets_ columns."`
	TargetsClean             int64     `parquet:"targets_clean" doc:"Targets whose state is clean."`
	TargetsDiverged          int64     `parquet:"targets_diverged" doc:"Targets whose state is diverged."`
	TargetsRepaired          int64     `parquet:"targets_repaired" doc:"Targets whose state is repaired."`
	TargetsIncomplete        int64     `parquet:"targets_incomplete" doc:"Targets whose state is incomplete."`
	TargetsRefused           int64     `parquet:"targets_refused" doc:"Targets whose state is refused."`
	TargetsUnreadable        int64     `parquet:"targets_unreadable" doc:"Targets whose state is unreadable."`
	TargetsPending           int64     `parquet:"targets_pending" doc:"Targets whose state is pending."`
	TargetsCoolingDown       int64     `parquet:"targets_cooling_down" doc:"Targets whose state is cooling_down."`
	TargetsHalfDeleted       int64     `parquet:"targets_half_deleted" doc:"Targets whose state is half_deleted."`
	TargetsRolledBack        int64     `parquet:"targets_rolled_back" doc:"Targets whose state is rolled_back."`
	TargetsLocked            int64     `parquet:"targets_locked" doc:"Targets whose state is locked."`
	TargetsFailed            int64     `parquet:"targets_failed" doc:"Targets whose state is failed."`
	References               int64     `parquet:"references" doc:"References found. The name is a keyword: write it in double quotes."`
	Checked                  int64     `parquet:"checked" doc:"References that were looked at."`
	VerdictsPresent          int64     `parquet:"verdicts_present" doc:"References whose verdict is present."`
	VerdictsMissing          int64     `parquet:"verdicts_missing" doc:"References whose verdict is missing."`
	VerdictsRecoverable      int64     `parquet:"verdicts_recoverable" doc:"References whose verdict is recoverable."`
	VerdictsLost             int64     `parquet:"verdicts_lost" doc:"References whose verdict is lost."`
	VerdictsSizeMismatch     int64     `parquet:"verdicts_size_mismatch" doc:"References whose verdict is size_mismatch."`
	VerdictsChecksumMismatch int64     `parquet:"verdicts_checksum_mismatch" doc:"References whose verdict is checksum_mismatch."`
	VerdictsUnreadable       int64     `parquet:"verdicts_unreadable" doc:"References whose verdict is unreadable."`
	VerdictsArchived         int64     `parquet:"verdicts_archived" doc:"References whose verdict is archived."`
	VerdictsPending          int64     `parquet:"verdicts_pending" doc:"References whose verdict is pending."`
	VerdictsSuperseded       int64     `parquet:"verdicts_superseded" doc:"References whose verdict is superseded."`
	VerdictsDenied           int64     `parquet:"verdicts_denied" doc:"References whose verdict is denied."`
	VerdictsUndecided        int64     `parquet:"verdicts_undecided" doc:"References whose verdict is undecided."`
	Flapped                  int64     `parquet:"flapped" doc:"References missing at the first look and there at the second."`
	Deferred                 int64     `parquet:"deferred" doc:"Targets that the budget left for the next pass; nothing was looked at there."`
	RefetchDeferred          int64     `parquet:"refetch_deferred" doc:"Objects that could be brought back and that the budget left for the next pass."`
	FindingsCarried          int64     `parquet:"findings_carried" doc:"Open findings of earlier passes that this one did not look at."`
	RowsAtRisk               int64     `parquet:"rows_at_risk" doc:"Live rows that cannot be read, each fragment counted once."`
	RowsDropped              int64     `parquet:"rows_dropped" doc:"Live rows that tables lost by repairs of this pass."`
	BytesRestored            int64     `parquet:"bytes_restored" doc:"Bytes brought back by repairs of this pass."`
	RequestsHead             int64     `parquet:"requests_head" doc:"HEAD requests sent to stores."`
	RequestsGet              int64     `parquet:"requests_get" doc:"GET requests sent to stores."`
	RequestsList             int64     `parquet:"requests_list" doc:"LIST requests sent to stores."`
	RequestsPut              int64     `parquet:"requests_put" doc:"PUT requests sent to stores."`
	RequestsThrottled        int64     `parquet:"requests_throttled" doc:"Answers that asked to slow down."`
	RequestsRetried          int64     `parquet:"requests_retried" doc:"Requests sent again."`
}

func toPassRow(p reconcile.Pass) passRow {
	t := p.Totals
	row := passRow{
		SchemaVersion: schemaVersion,
		Mode:          clean(p.Mode), ToolVersion: clean(p.ToolVersion), Actor: clean(p.Actor), Host: clean(p.Host), Reason: cleanPtr(p.Reason),
		StartedAt: p.StartedAt.UTC(), FinishedAt: p.FinishedAt.UTC(),
		ExitCode: int32(p.Exit.Code), ExitName: clean(p.Exit.Name),
		ScopeVersions: p.Scope.Versions.String(), ScopeDepth: p.Scope.Depth.String(), ScopeTargetsFilter: cleanAll(p.Scope.TargetsFilter),
		CoverageReferences: p.Coverage.References, CoverageChecked: p.Coverage.Checked, CoverageRatio: p.Coverage.Ratio,
		Targets: t.Targets, References: t.References, Checked: t.Checked,
		Flapped: t.Flapped, Deferred: t.Deferred, RefetchDeferred: t.RefetchDeferred, FindingsCarried: t.Carried, RowsAtRisk: t.RowsAtRisk, RowsDropped: t.RowsDropped, BytesRestored: t.BytesRestored,
		RequestsHead: t.Requests.Head, RequestsGet: t.Requests.Get, RequestsList: t.Requests.List, RequestsPut: t.Requests.Put, RequestsThrottled: t.Requests.Throttled, RequestsRetried: t.Requests.Retried,
		TargetsClean:             t.TargetsByState[reconcile.StateClean],
		TargetsDiverged:          t.TargetsByState[reconcile.StateDiverged],
		TargetsRepaired:          t.TargetsByState[reconcile.StateRepaired],
		TargetsIncomplete:        t.TargetsByState[reconcile.StateIncomplete],
		TargetsRefused:           t.TargetsByState[reconcile.StateRefused],
		TargetsUnreadable:        t.TargetsByState[reconcile.StateUnreadable],
		TargetsPending:           t.TargetsByState[reconcile.StatePending],
		TargetsCoolingDown:       t.TargetsByState[reconcile.StateCoolingDown],
		TargetsHalfDeleted:       t.TargetsByState[reconcile.StateHalfDeleted],
		TargetsRolledBack:        t.TargetsByState[reconcile.StateRolledBack],
		TargetsLocked:            t.TargetsByState[reconcile.StateLocked],
		TargetsFailed:            t.TargetsByState[reconcile.StateFailed],
		VerdictsPresent:          t.Verdicts[reconcile.Present],
		VerdictsMissing:          t.Verdicts[reconcile.Missing],
		VerdictsRecoverable:      t.Verdicts[reconcile.Recoverable],
		VerdictsLost:             t.Verdicts[reconcile.Lost],
		VerdictsSizeMismatch:     t.Verdicts[reconcile.SizeMismatch],
		VerdictsChecksumMismatch: t.Verdicts[reconcile.ChecksumMismatch],
		VerdictsUnreadable:       t.Verdicts[reconcile.Unreadable],
		VerdictsArchived:         t.Verdicts[reconcile.Archived],
		VerdictsPending:          t.Verdicts[reconcile.Pending],
		VerdictsSuperseded:       t.Verdicts[reconcile.Superseded],
		VerdictsDenied:           t.Verdicts[reconcile.Denied],
		VerdictsUndecided:        t.Verdicts[reconcile.Undecided],
	}
	for _, r := range p.Scope.Roles {
		row.ScopeRoles = append(row.ScopeRoles, r.String())
	}
	return row
}
