package reconcile

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rocketkeep/reconcile/internal/objstore"
)

// Reference is one object that metadata says must exist, with what is recorded
// about it. It is small because a pass over a large table makes a million of them.
type Reference struct {
	Role Role
	// Path is the object as the metadata names it, below the dataset root or base
	// ("data/x.lance"), never a URL of ours.
	Path string
	// Location is where it is looked for. The zero Location means that the
	// metadata does not resolve (unknown base id): Reason says why.
	Location objstore.Location
	// Alternates are further places, any of which holding the object means that
	// it is present (a branch's index whose base id is known to be wrong).
	Alternates []Place
	// Base is the place whose controls speak for this object: the dataset root or
	// one of its base paths.
	Base objstore.Location
	// Version is the newest version in scope that names the object.
	Version uint64
	// FragmentID is meaningful when HasFragment.
	FragmentID  uint64
	HasFragment bool
	// IndexUUID and IndexName are set for RoleIndex.
	IndexUUID, IndexName string
	// MinSize is the smallest number of bytes that a whole object of this format
	// can have; 0 = any.
	MinSize int64
	// Size in bytes as recorded; 0 = not recorded.
	Size int64
	// Checksum as recorded ("sha256:<hex>", …); empty = not recorded.
	Checksum string
	// Content, where set, is what is recorded of an object that wraps what its records
	// speak of: Size and Checksum, which are the object's own, are then not recorded.
	Content *Content
	// Record names the record, or records, that refer to a blob; empty = not told.
	Record string
	// PhysicalRows and LiveRows of the fragment; -1 = unknown.
	PhysicalRows, LiveRows int64
	// Harmless marks an object whose loss breaks nothing (a data file whose fields
	// are all tombstoned, a transaction file): its finding never moves a state.
	Harmless bool
	// Reason presets the finding's reason (unknown_base, dead_file); often empty.
	Reason string
}

// Content is what is recorded of the bytes inside an object: Size in bytes (0 = not
// recorded) and Checksum as in [Reference] (empty = not recorded).
type Content struct {
	Size     int64
	Checksum string
}

// Recorded is the size and the checksum that records tell, of the object or of its
// content; 0 and empty where they tell none.
func (r *Reference) Recorded() (size int64, checksum string) {
	if r.Content != nil {
		return r.Content.Size, r.Content.Checksum
	}
	return r.Size, r.Checksum
}

// RecordedText is what [Reference.Recorded] tells, as it stands in plans: "40000
// sha256:…", with - for what is not recorded.
func (r *Reference) RecordedText() string {
	size, checksum := r.Recorded()
	text := "-"
	if size > 0 {
		text = strconv.FormatInt(size, 10)
	}
	if checksum == "" {
		checksum = "-"
	}
	return text + " " + checksum
}

// Place is where an object may lie, and the base whose store is asked for it.
type Place struct{ Base, Location objstore.Location }

// UnknownRows of a Reference.
const UnknownRows int64 = -1

// Finding is a reference that is not present. Its JSON names are public.
type Finding struct {
	FindingID  string   `json:"finding_id"`
	Target     string   `json:"target"`
	Store      string   `json:"store"`
	Version    uint64   `json:"version"`
	Scopes     []string `json:"scopes"`
	Role       Role     `json:"role"`
	Path       string   `json:"path"`
	URL        string   `json:"url"`
	FragmentID *uint64  `json:"fragment_id"`
	// Record names the record, or records, that refer to a blob; null when not told.
	Record  *string `json:"record"`
	Verdict Verdict `json:"verdict"`
	Reason  *string `json:"reason"`

	ExpectedSize     *int64  `json:"expected_size"`
	ObservedSize     *int64  `json:"observed_size"`
	ExpectedChecksum *string `json:"expected_checksum"`
	ObservedChecksum *string `json:"observed_checksum"`

	PhysicalRows *int64   `json:"physical_rows"`
	RowsAtRisk   *int64   `json:"rows_at_risk"`
	ColumnsLost  []string `json:"columns_lost"`
	ColumnsKept  []string `json:"columns_kept"`

	HTTPStatus *int    `json:"http_status"`
	ErrorCode  *string `json:"error_code"`
	RequestID  *string `json:"request_id"`

	FirstObservedAt  time.Time  `json:"first_observed_at"`
	ConfirmedAt      *time.Time `json:"confirmed_at"`
	RecoverableUntil *time.Time `json:"recoverable_until"`

	PeersAsked  []string `json:"peers_asked"`
	PeersHaving []string `json:"peers_having"`

	ProposedAction Action   `json:"proposed_action"`
	BlockedBy      []string `json:"blocked_by"`

	// ObservedETag is that of the present object which the second look saw; it is not
	// part of any report.
	ObservedETag string `json:"-"`
	// Restorable: an older version of the object can be brought back. It is not part
	// of any report; Recoverable and ProposedAction say it there.
	Restorable bool `json:"-"`
	// RestorableVersion is the id of that version, the newest of them.
	RestorableVersion string `json:"-"`
	// SaidNo are those of PeersAsked that said in this look that they have no copy. It is
	// not part of any report; PeersHaving and BlockedBy say it there.
	SaidNo []string `json:"-"`
	// RetryAt, when set, is when the next attempt to bring the object back is due (UTC, of
	// the ledger's clock): an earlier one failed. It is not part of any report;
	// BlockedCoolingDown says it there.
	RetryAt *time.Time `json:"-"`
	// Ref is the reference behind the finding; it is not part of any report.
	Ref Reference `json:"-"`
}

// NewFinding makes the finding of one reference of a target, with the unknown
// left null and every list empty. at is the time of the first look (UTC).
func NewFinding(t Target, ref Reference, at time.Time) Finding {
	f := Finding{
		FindingID: FindingIDOf(t, ref), Target: t.Name, Store: t.Store,
		Version: ref.Version, Scopes: []string{}, Role: ref.Role, Path: ref.Path, URL: ref.Location.String(),
		ColumnsLost: []string{}, ColumnsKept: []string{}, PeersAsked: []string{}, PeersHaving: []string{}, BlockedBy: []string{},
		FirstObservedAt: at.UTC(), Ref: ref,
	}
	if ref.HasFragment {
		f.FragmentID = Ptr(ref.FragmentID)
	}
	if ref.Reason != "" {
		f.Reason = Ptr(ref.Reason)
	}
	size, checksum := ref.Recorded()
	if size > 0 {
		f.ExpectedSize = Ptr(size)
	}
	if checksum != "" {
		f.ExpectedChecksum = Ptr(checksum)
	}
	if ref.Record != "" {
		f.Record = Ptr(ref.Record)
	}
	if ref.PhysicalRows >= 0 {
		f.PhysicalRows = Ptr(ref.PhysicalRows)
	}
	if ref.LiveRows >= 0 {
		f.RowsAtRisk = Ptr(ref.LiveRows)
	}
	return f
}

// RowsKey names what the finding's rows at risk belong to: findings of one fragment,
// or of one write-ahead generation, speak of the same rows.
func (f *Finding) RowsKey() string {
	if f.FragmentID != nil {
		return fmt.Sprintf("fragment %d", *f.FragmentID)
	}
	if f.Role == RoleWALGeneration {
		if parts := strings.SplitN(f.Path, "/", 4); len(parts) >= 3 {
			return strings.Join(parts[:3], "/")
		}
	}
	return f.FindingID
}

// SetEvidence writes what a store's error tells (status, code, request id) into the
// finding; what it does not tell stays as it is.
func (f *Finding) SetEvidence(err error) {
	var se *objstore.Error
	if !errors.As(err, &se) {
		return
	}
	if se.Status != 0 {
		f.HTTPStatus = Ptr(se.Status)
	}
	if se.Code != "" {
		f.ErrorCode = Ptr(se.Code)
	}
	if se.RequestID != "" {
		f.RequestID = Ptr(se.RequestID)
	}
}

// FindingIDOf is the identity of a reference's finding. A name that does not
// resolve has one of its own.
func FindingIDOf(t Target, ref Reference) string {
	if ref.Location == (objstore.Location{}) {
		return FindingID(t.Location, ref.Role, objstore.Location{Scheme: "unresolved", Key: ref.Path})
	}
	return FindingID(t.Location, ref.Role, ref.Location)
}

// Ptr is a pointer to a copy of v, for fields whose null means unknown.
func Ptr[T any](v T) *T { return &v }

// The closed list of what can stand in Finding.BlockedBy. A rung that is still
// open stands there as BlockedRungOpen followed by its name.
const (
	BlockedRungOpen            = "rung_open:"
	BlockedVersionsUnknown     = "versions_unknown"
	BlockedEverythingMissing   = "everything_missing"
	BlockedOverLimit           = "over_limit"
	BlockedDropAfter           = "drop_after"
	BlockedPartialColumns      = "partial_columns"
	BlockedDeletionPolicy      = "deletion_policy"
	BlockedUnknownWriterFlags  = "unknown_writer_flags"
	BlockedUnconditionalWriter = "unconditional_writer"
	BlockedExternalCommitStore = "external_commit_store"
	BlockedNoConditionalPut    = "no_conditional_put"
	BlockedOutsideRoot         = "outside_root"
	BlockedReplaceUnproven     = "replace_unproven"
	BlockedReplaceWouldLose    = "replace_would_lose_bytes"
	BlockedWALSealed           = "wal_sealed"
	BlockedBusy                = "busy"
	BlockedHalfDeleted         = "half_deleted"
	BlockedRolledBack          = "rolled_back"
	BlockedIncompleteLook      = "incomplete_look"
	BlockedCoolingDown         = "cooling_down"
	BlockedAcknowledged        = "acknowledged"
)

// The closed list of reasons that look-only code gives to findings and targets.
const (
	ReasonNoTargets          = "no_targets"
	ReasonUnknownReaderFlags = "unknown_reader_flags"
	ReasonUnknownBase        = "unknown_base"
	ReasonControlsFailed     = "controls_failed"
	ReasonMetadataSizeWrong  = "metadata_size_wrong"
	ReasonDeadFile           = "dead_file"
	ReasonTooShort           = "too_short"
	ReasonBadFooter          = "bad_footer"
	ReasonBadManifest        = "bad_manifest"
	ReasonMixedNaming        = "mixed_naming"
	ReasonHigherVersionTrace = "higher_version_trace"
	ReasonTimeout            = "timeout"
	ReasonThrottled          = "throttled"
	ReasonServerError        = "server_error"
	ReasonNoAnswer           = "no_answer"
	ReasonNoSuchBucket       = "no_such_bucket"
	// ReasonUnreachable: no connection to the store came about. ReasonBadRequest: the store
	// refused the question itself. ReasonNoCredentials: there is nobody to sign as;
	// ReasonBadCredentials: the store does not take the keys, wrong or expired.
	ReasonUnreachable     = "unreachable"
	ReasonBadRequest      = "bad_request"
	ReasonNoCredentials   = "no_credentials"
	ReasonBadCredentials  = "bad_credentials"
	ReasonContradiction   = "contradiction"
	ReasonNoContentLength = "no_content_length"
	ReasonTargetTimeout   = "target_timeout"
	// ReasonNothingThere: of a dataset that an earlier pass read nothing is left, and no
	// registry says whether that is meant.
	ReasonNothingThere = "nothing_there"
	// ReasonOverdue: budgets left the target again and again, until nobody had looked at
	// it for budget.full_cycle.
	ReasonOverdue           = "overdue"
	ReasonBaseDenied        = "base_denied"
	ReasonAccessDenied      = "access_denied"
	ReasonEverythingMissing = "everything_missing"
)
