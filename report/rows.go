package report

import (
	"math"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/reconcile"
)

// schemaVersion stands in every row. It rises when a column is added; columns are
// never renamed, retyped or removed.
const schemaVersion = 5

// The row types. A column is named as in the JSON document; `doc` is its line of
// the data dictionary (docs/report-schema.md is made from it). Rules shared by all:
//   - versions and fragment ids are signed 64-bit, because engines other than
//     DuckDB refuse or misread unsigned columns; what does not fit is null
//   - strings are valid UTF-8, because one bad byte makes a reader refuse the file

type findingRow struct {
	SchemaVersion    int32      `parquet:"schema_version" doc:"Version of this schema; rises when a column is added."`
	FindingID        string     `parquet:"finding_id,plain" doc:"Stable identity of the finding over passes and hosts: first 32 hex digits of SHA-256(canonical dataset URI, 0, role, 0, canonical object URL)."`
	Store            string     `parquet:"store,dict" doc:"Configured name of the store, else its root URI."`
	Target           string     `parquet:"target,dict" doc:"Target that names the object."`
	Version          *int64     `parquet:"version,optional" doc:"Newest version in scope that names the object; null when there is none to tell."`
	Scopes           []string   `parquet:"scopes,list" parquet-element:",dict" doc:"Where the object is named: latest, tag:x, branch:y, version:n."`
	Role             string     `parquet:"role,dict" doc:"What the object is to its target: data, deletion, index, overlay, row_ids, transaction, manifest, blob_sidecar, wal_manifest, wal_generation, blob."`
	Path             string     `parquet:"path,plain" doc:"The object as the metadata names it."`
	URL              string     `parquet:"url,plain" doc:"Where that resolves to; empty when it does not resolve. Has a bloom filter."`
	FragmentID       *int64     `parquet:"fragment_id,optional" doc:"Fragment of the object; null when it belongs to none."`
	Verdict          string     `parquet:"verdict,dict" doc:"missing, recoverable, lost, size_mismatch, checksum_mismatch, unreadable, archived, pending, superseded, denied or undecided."`
	Reason           *string    `parquet:"reason,optional,dict" doc:"Why; null when the verdict says it all."`
	ExpectedSize     *int64     `parquet:"expected_size,optional" doc:"Recorded size in bytes; null when none is recorded."`
	ObservedSize     *int64     `parquet:"observed_size,optional" doc:"Size in bytes that the store told; null when it told none."`
	ExpectedChecksum *string    `parquet:"expected_checksum,optional,plain" doc:"Recorded checksum (sha256:<hex>, crc32c:<base64>, md5:<hex>); null when none is recorded."`
	ObservedChecksum *string    `parquet:"observed_checksum,optional,plain" doc:"Checksum of the bytes that are there; null when it was not computed."`
	PhysicalRows     *int64     `parquet:"physical_rows,optional" doc:"Rows of the fragment, deleted ones included; null when unknown."`
	RowsAtRisk       *int64     `parquet:"rows_at_risk,optional" doc:"Live rows that cannot be read without the object; 0 while it is pending, null when unknown. Count a fragment once: several objects of it give the same number."`
	ColumnsLost      []string   `parquet:"columns_lost,list" parquet-element:",dict" doc:"Columns whose bytes the object holds."`
	ColumnsKept      []string   `parquet:"columns_kept,list" parquet-element:",dict" doc:"Columns of the fragment that other files still hold."`
	HTTPStatus       *int32     `parquet:"http_status,optional" doc:"Status of the answer that decided; null when there was none (files, time-outs)."`
	ErrorCode        *string    `parquet:"error_code,optional,dict" doc:"Error code of the store (NoSuchKey); null when it told none."`
	RequestID        *string    `parquet:"request_id,optional,plain" doc:"Request id of that answer, for the store's support."`
	FirstObservedAt  time.Time  `parquet:"first_observed_at,timestamp(microsecond)" doc:"Time of the first look of this pass (UTC)."`
	ConfirmedAt      *time.Time `parquet:"confirmed_at,optional,timestamp(microsecond)" doc:"Time of the second look that agreed (UTC); null when there was none."`
	RecoverableUntil *time.Time `parquet:"recoverable_until,optional,timestamp(microsecond)" doc:"When the copy that can be brought back expires (UTC); null when the store does not tell."`
	PeersAsked       []string   `parquet:"peers_asked,list" parquet-element:",dict" doc:"Peers that were asked for a copy."`
	PeersHaving      []string   `parquet:"peers_having,list" parquet-element:",dict" doc:"Peers that have one."`
	ProposedAction   string     `parquet:"proposed_action,dict" doc:"What a full repair would do next: none, restore, refetch, drop_fragment, drop_index."`
	BlockedBy        []string   `parquet:"blocked_by,list" parquet-element:",dict" doc:"What keeps it from doing so; empty when nothing does."`
	Record           *string    `parquet:"record,optional,plain" doc:"Record or records that refer to the blob; null when not told, and for other roles."`
}

type referenceRow struct {
	SchemaVersion int32  `parquet:"schema_version" doc:"Version of this schema; rises when a column is added."`
	Store         string `parquet:"store,dict" doc:"Configured name of the store, else its root URI."`
	Target        string `parquet:"target,dict" doc:"Target that names the object."`
	Role          string `parquet:"role,dict" doc:"What the object is to its target."`
	Path          string `parquet:"path,plain" doc:"The object as the metadata names it."`
	URL           string `parquet:"url,plain" doc:"Where that resolves to; empty when it does not resolve. Has a bloom filter."`
	Version       *int64 `parquet:"version,optional" doc:"Newest version in scope that names the object; null when there is none to tell."`
	FragmentID    *int64 `parquet:"fragment_id,optional" doc:"Fragment of the object; null when it belongs to none."`
	ExpectedSize  *int64 `parquet:"expected_size,optional" doc:"Recorded size in bytes; null when none is recorded."`
	Verdict       string `parquet:"verdict,dict" doc:"What the first look said; findings hold what a second look confirmed."`
	ObservedSize  *int64 `parquet:"observed_size,optional" doc:"Size in bytes that the store told; null when it told none."`
	HTTPStatus    *int32 `parquet:"http_status,optional" doc:"Status of the answer; null when there was none."`
}

type targetRow struct {
	SchemaVersion      int32    `parquet:"schema_version" doc:"Version of this schema; rises when a column is added."`
	Store              string   `parquet:"store,dict" doc:"Configured name of the store, else its root URI."`
	Target             string   `parquet:"target,dict" doc:"Name of the target."`
	Kind               string   `parquet:"kind,dict" doc:"rollout, generic, datagen, system, table or blobs."`
	URI                string   `parquet:"uri,plain" doc:"Where the target lies."`
	Version            *int64   `parquet:"version,optional" doc:"Newest version; null when there is none to tell."`
	State              string   `parquet:"state,dict" doc:"clean, diverged, repaired, incomplete, refused, unreadable, pending, cooling_down, half_deleted, rolled_back, locked or failed."`
	Reason             *string  `parquet:"reason,optional,dict" doc:"Why; null when the state says it all."`
	References         int64    `parquet:"references" doc:"References found. The name is a keyword: write it in double quotes."`
	Checked            int64    `parquet:"checked" doc:"References that were looked at."`
	Findings           int64    `parquet:"findings" doc:"References that are not present."`
	RowsAtRisk         *int64   `parquet:"rows_at_risk,optional" doc:"Live rows that cannot be read, each fragment counted once; null when unknown."`
	LiveRows           *int64   `parquet:"live_rows,optional" doc:"Live rows of the newest version; null when unknown."`
	Fragments          *int64   `parquet:"fragments,optional" doc:"Fragments of the newest version; null when unknown."`
	PendingGenerations *int64   `parquet:"pending_generations,optional" doc:"Write-ahead-log generations not merged yet; null when unknown."`
	LeakedGenerations  *int64   `parquet:"leaked_generations,optional" doc:"Write-ahead-log generations that merges left behind, which is no damage; null when unknown."`
	LeakedBytes        *int64   `parquet:"leaked_bytes,optional" doc:"Bytes of the generations left behind; null when unknown."`
	Registry           *string  `parquet:"registry,optional,dict" doc:"ok, unregistered, no_store or uri_differs; null when no registry was read."`
	NotChecked         []string `parquet:"not_checked,list" parquet-element:",dict" doc:"Roles that exist and were not looked at."`
	NotCheckedCounts   []*int64 `parquet:"not_checked_counts,list" parquet-element:",optional" doc:"How many objects of each, in the order of not_checked; null when unknown."`
	NotCheckedReasons  []string `parquet:"not_checked_reasons,list" parquet-element:",dict" doc:"Why each was not looked at, in the order of not_checked."`
}

type repairRow struct {
	SchemaVersion    int32    `parquet:"schema_version" doc:"Version of this schema; rises when a column is added."`
	RepairID         string   `parquet:"repair_id,plain" doc:"Identity of the repair; also stands in the transaction that it commits."`
	Store            string   `parquet:"store,dict" doc:"Configured name of the store, else its root URI."`
	Target           string   `parquet:"target,dict" doc:"Target that was repaired."`
	Action           string   `parquet:"action,dict" doc:"restore, refetch, drop_fragment or drop_index."`
	State            string   `parquet:"state,dict" doc:"planned, intended, applied, conflict, refused, failed or uncertain."`
	Trigger          string   `parquet:"trigger,dict" doc:"schedule, manual or failure."`
	TriggerError     *string  `parquet:"trigger_error,optional,plain" doc:"The failure that asked for it; null for other triggers."`
	ReadVersion      *int64   `parquet:"read_version,optional" doc:"Version that the repair was made from; null when none was read."`
	CommittedVersion *int64   `parquet:"committed_version,optional" doc:"Version that the repair made; null when it made none."`
	TransactionUUID  *string  `parquet:"transaction_uuid,optional,plain" doc:"Transaction of the commit; null when there was none."`
	Fragments        []int64  `parquet:"fragments,list" doc:"Ids of the fragments; repair_fragments tells more of each."`
	RowsDropped      *int64   `parquet:"rows_dropped,optional" doc:"Live rows that the table lost by the repair; null when unknown."`
	BytesRestored    *int64   `parquet:"bytes_restored,optional" doc:"Bytes brought back; null when unknown."`
	Source           *string  `parquet:"source,optional,plain" doc:"Version or peer that the bytes came from; null when none."`
	Error            *string  `parquet:"error,optional,plain" doc:"Why it did not end well; null when it did."`
	Proof            *string  `parquet:"proof,optional,dict" doc:"What proved the copy that was brought back (checksum sha256); null when none was, and for commits."`
	DurationMS       *int64   `parquet:"duration_ms,optional" doc:"Milliseconds that the attempt took; null when not measured."`
	Files            []string `parquet:"files,list" doc:"Objects that are brought back, or those of a dropped index entry, as the metadata names them; what a dropped fragment misses stands in repair_fragments."`
}

type repairFragmentRow struct {
	SchemaVersion int32    `parquet:"schema_version" doc:"Version of this schema; rises when a column is added."`
	RepairID      string   `parquet:"repair_id,plain" doc:"Repair that the fragment belongs to."`
	Store         string   `parquet:"store,dict" doc:"Configured name of the store, else its root URI."`
	Target        string   `parquet:"target,dict" doc:"Target that was repaired."`
	FragmentID    *int64   `parquet:"fragment_id,optional" doc:"Id of the fragment, named as in findings; null when it does not fit in 63 bits."`
	PhysicalRows  *int64   `parquet:"physical_rows,optional" doc:"Rows of the fragment, deleted ones included; null when unknown."`
	LiveRows      *int64   `parquet:"live_rows,optional" doc:"Rows of the fragment that were not deleted; null when unknown."`
	MissingFiles  []string `parquet:"missing_files,list" doc:"Its damaged objects, as the metadata names them."`
}

// clean makes s valid UTF-8.
func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func cleanPtr(s *string) *string {
	if s == nil {
		return nil
	}
	return reconcile.Ptr(clean(*s))
}

func cleanAll(ss []string) []string {
	out := make([]string, len(ss))
	for i, s := range ss {
		out[i] = clean(s)
	}
	return out
}

// signed is n as a nullable signed column holds it.
func signed(n *uint64) *int64 {
	if n == nil || *n > math.MaxInt64 {
		return nil
	}
	return reconcile.Ptr(int64(*n))
}

// version is signed with 0 as unknown: versions begin at 1.
func version(n uint64) *int64 {
	if n == 0 {
		return nil
	}
	return signed(&n)
}

func status(n *int) *int32 {
	if n == nil {
		return nil
	}
	return reconcile.Ptr(int32(*n))
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	return reconcile.Ptr(t.UTC())
}

func toFindingRow(f reconcile.Finding) findingRow {
	return findingRow{
		SchemaVersion: schemaVersion,
		FindingID:     clean(f.FindingID), Store: clean(f.Store), Target: clean(f.Target),
		Version: version(f.Version), Scopes: cleanAll(f.Scopes), Role: f.Role.String(),
		Path: clean(f.Path), URL: clean(f.URL), FragmentID: signed(f.FragmentID),
		Verdict: f.Verdict.String(), Reason: cleanPtr(f.Reason),
		ExpectedSize: f.ExpectedSize, ObservedSize: f.ObservedSize,
		ExpectedChecksum: cleanPtr(f.ExpectedChecksum), ObservedChecksum: cleanPtr(f.ObservedChecksum),
		PhysicalRows: f.PhysicalRows, RowsAtRisk: f.RowsAtRisk,
		ColumnsLost: cleanAll(f.ColumnsLost), ColumnsKept: cleanAll(f.ColumnsKept),
		HTTPStatus: status(f.HTTPStatus), ErrorCode: cleanPtr(f.ErrorCode), RequestID: cleanPtr(f.RequestID),
		FirstObservedAt: f.FirstObservedAt.UTC(), ConfirmedAt: utc(f.ConfirmedAt), RecoverableUntil: utc(f.RecoverableUntil),
		PeersAsked: cleanAll(f.PeersAsked), PeersHaving: cleanAll(f.PeersHaving),
		ProposedAction: f.ProposedAction.String(), BlockedBy: cleanAll(f.BlockedBy), Record: cleanPtr(f.Record),
	}
}

func toReferenceRow(r CheckedReference) referenceRow {
	return referenceRow{
		SchemaVersion: schemaVersion,
		Store:         clean(r.Store), Target: clean(r.Target), Role: r.Role.String(),
		Path: clean(r.Path), URL: clean(r.URL), Version: version(r.Version), FragmentID: signed(r.FragmentID),
		ExpectedSize: r.ExpectedSize, Verdict: r.Verdict.String(), ObservedSize: r.ObservedSize, HTTPStatus: status(r.HTTPStatus),
	}
}

func toTargetRow(t reconcile.TargetResult) targetRow {
	row := targetRow{
		SchemaVersion: schemaVersion,
		Store:         clean(t.Store), Target: clean(t.Target), Kind: clean(t.Kind), URI: clean(t.URI),
		Version: signed(t.Version), State: t.State.String(), Reason: cleanPtr(t.Reason),
		References: t.References, Checked: t.Checked, Findings: t.Findings,
		RowsAtRisk: t.RowsAtRisk, LiveRows: t.LiveRows, Fragments: t.Fragments,
		PendingGenerations: t.PendingGenerations, LeakedGenerations: t.LeakedGenerations, LeakedBytes: t.LeakedBytes, Registry: cleanPtr(t.Registry),
	}
	for _, n := range t.NotChecked {
		row.NotChecked = append(row.NotChecked, n.Role.String())
		row.NotCheckedCounts = append(row.NotCheckedCounts, n.Count)
		row.NotCheckedReasons = append(row.NotCheckedReasons, clean(n.Reason))
	}
	return row
}

func toRepairRows(r reconcile.RepairOutcome) (repairRow, []repairFragmentRow) {
	row := repairRow{
		SchemaVersion: schemaVersion,
		RepairID:      clean(r.RepairID), Store: clean(r.Store), Target: clean(r.Target),
		Action: r.Action.String(), State: clean(r.State), Trigger: clean(r.Trigger), TriggerError: cleanPtr(r.TriggerError),
		ReadVersion: signed(r.ReadVersion), CommittedVersion: signed(r.CommittedVersion), TransactionUUID: cleanPtr(r.TransactionUUID),
		RowsDropped: r.RowsDropped, BytesRestored: r.BytesRestored, Source: cleanPtr(r.Source), Error: cleanPtr(r.Error),
		Proof: cleanPtr(r.Proof), DurationMS: r.DurationMS, Files: cleanAll(r.Files),
	}
	fragments := make([]repairFragmentRow, 0, len(r.Fragments))
	for _, f := range r.Fragments {
		id := signed(&f.ID)
		if id != nil {
			row.Fragments = append(row.Fragments, *id)
		}
		fragments = append(fragments, repairFragmentRow{
			SchemaVersion: schemaVersion,
			RepairID:      row.RepairID, Store: row.Store, Target: row.Target, FragmentID: id,
			PhysicalRows: f.PhysicalRows, LiveRows: f.LiveRows, MissingFiles: cleanAll(f.MissingFiles),
		})
	}
	return row, fragments
}
