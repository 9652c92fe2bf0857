-- The ledger in one file: the same tables and columns as in ../postgres, where each
-- column is explained. What differs
--   * no schema, so no prefix
--   * times are text (RFC 3339, UTC, microseconds), lists are JSON text, booleans 0 and 1
--   * the clock is the view clock

CREATE TABLE schema_migrations (
    version      INTEGER NOT NULL PRIMARY KEY CHECK (version > 0),
    name         TEXT NOT NULL,
    checksum     TEXT NOT NULL,
    tool_version TEXT NOT NULL,
    applied_at   TEXT NOT NULL
) STRICT;

-- The clock of the ledger. Text of one width, so that it sorts and compares as time.
CREATE VIEW clock AS SELECT strftime('%Y-%m-%dT%H:%M:%f000Z', 'now') AS now;

CREATE TABLE passes (
    pass_id              TEXT NOT NULL PRIMARY KEY CHECK (pass_id <> ''),
    mode                 TEXT NOT NULL,
    tool_version         TEXT NOT NULL,
    actor                TEXT NOT NULL,
    host                 TEXT NOT NULL,
    reason               TEXT,
    started_at           TEXT NOT NULL,
    finished_at          TEXT,
    exit_code            INTEGER,
    exit_name            TEXT,
    scope_versions       TEXT NOT NULL CHECK (scope_versions IN ('current', 'retained', 'all')),
    scope_depth          TEXT NOT NULL CHECK (scope_depth IN ('head', 'footer', 'checksum')),
    scope_roles          TEXT NOT NULL CHECK (json_type(scope_roles) = 'array'),
    scope_targets_filter TEXT NOT NULL CHECK (json_type(scope_targets_filter) = 'array'),
    coverage_references  INTEGER,
    coverage_checked     INTEGER,
    coverage_ratio       REAL CHECK (coverage_ratio BETWEEN 0 AND 1),
    targets              INTEGER,
    targets_clean        INTEGER,
    targets_diverged     INTEGER,
    targets_repaired     INTEGER,
    targets_incomplete   INTEGER,
    targets_refused      INTEGER,
    targets_unreadable   INTEGER,
    targets_pending      INTEGER,
    targets_cooling_down INTEGER,
    targets_half_deleted INTEGER,
    targets_rolled_back  INTEGER,
    targets_locked       INTEGER,
    targets_failed       INTEGER,
    references_found     INTEGER,
    checked              INTEGER,
    verdicts_present     INTEGER,
    verdicts_missing     INTEGER,
    verdicts_recoverable INTEGER,
    verdicts_lost        INTEGER,
    verdicts_size_mismatch     INTEGER,
    verdicts_checksum_mismatch INTEGER,
    verdicts_unreadable  INTEGER,
    verdicts_archived    INTEGER,
    verdicts_pending     INTEGER,
    verdicts_superseded  INTEGER,
    verdicts_denied      INTEGER,
    verdicts_undecided   INTEGER,
    flapped              INTEGER,
    findings_carried     INTEGER,
    rows_at_risk         INTEGER,
    rows_dropped         INTEGER,
    bytes_restored       INTEGER,
    requests_head        INTEGER,
    requests_get         INTEGER,
    requests_list        INTEGER,
    requests_put         INTEGER,
    requests_throttled   INTEGER,
    requests_retried     INTEGER,
    report_uri           TEXT,
    CONSTRAINT passes_end_is_whole CHECK ((finished_at IS NULL) = (exit_code IS NULL) AND (finished_at IS NULL) = (exit_name IS NULL)),
    CONSTRAINT passes_targets_add_up CHECK (targets = targets_clean + targets_diverged + targets_repaired + targets_incomplete
        + targets_refused + targets_unreadable + targets_pending + targets_cooling_down + targets_half_deleted
        + targets_rolled_back + targets_locked + targets_failed)
) STRICT;
CREATE INDEX passes_started_at ON passes (started_at);

CREATE TABLE targets (
    target_uri       TEXT NOT NULL PRIMARY KEY CHECK (target_uri <> ''),
    target           TEXT NOT NULL,
    store            TEXT NOT NULL,
    kind             TEXT NOT NULL,
    first_seen_at    TEXT NOT NULL,
    last_seen_at     TEXT NOT NULL,
    last_checked_at  TEXT,
    last_pass_id     TEXT,
    -- The newest version may only rise: a table whose newest version is lower than
    -- this one was rolled back, or is being deleted newest manifest first.
    highest_version  INTEGER CHECK (highest_version > 0),
    accepted_version INTEGER CHECK (accepted_version > 0),
    accepted_at      TEXT,
    accepted_by      TEXT,
    accepted_reason  TEXT,
    CONSTRAINT targets_acceptance_is_whole CHECK ((accepted_version IS NULL) = (accepted_at IS NULL) AND (accepted_version IS NULL) = (accepted_by IS NULL))
) STRICT;
CREATE INDEX targets_name ON targets (target);

CREATE TABLE pass_targets (
    pass_id             TEXT NOT NULL REFERENCES passes ON DELETE CASCADE,
    target_uri          TEXT NOT NULL REFERENCES targets,
    target              TEXT NOT NULL,
    store               TEXT NOT NULL,
    kind                TEXT NOT NULL,
    version             INTEGER,
    state               TEXT NOT NULL CHECK (state IN ('clean', 'diverged', 'repaired', 'incomplete', 'refused', 'unreadable',
        'pending', 'cooling_down', 'half_deleted', 'rolled_back', 'locked', 'failed')),
    reason              TEXT,
    references_found    INTEGER NOT NULL,
    checked             INTEGER NOT NULL,
    findings            INTEGER NOT NULL,
    rows_at_risk        INTEGER,
    live_rows           INTEGER,
    fragments           INTEGER,
    pending_generations INTEGER,
    registry            TEXT CHECK (registry IN ('ok', 'unregistered', 'no_store', 'uri_differs')),
    not_checked         TEXT NOT NULL CHECK (json_type(not_checked) = 'array'),
    recorded_at         TEXT NOT NULL,
    PRIMARY KEY (pass_id, target_uri)
) STRICT;
CREATE INDEX pass_targets_of_a_target ON pass_targets (target_uri, recorded_at);

CREATE TABLE findings (
    finding_id         TEXT NOT NULL PRIMARY KEY CHECK (length(finding_id) = 32),
    target_uri         TEXT NOT NULL REFERENCES targets,
    target             TEXT NOT NULL,
    store              TEXT NOT NULL,
    role               TEXT NOT NULL CHECK (role IN ('data', 'deletion', 'index', 'overlay', 'row_ids', 'transaction', 'manifest',
        'blob_sidecar', 'wal_manifest', 'wal_generation', 'blob')),
    path               TEXT NOT NULL,
    url                TEXT NOT NULL,
    version            INTEGER,
    scopes             TEXT NOT NULL CHECK (json_type(scopes) = 'array'),
    fragment_id        INTEGER,
    verdict            TEXT NOT NULL CHECK (verdict IN ('missing', 'recoverable', 'lost', 'size_mismatch', 'checksum_mismatch',
        'unreadable', 'archived', 'pending', 'denied', 'undecided')),
    reason             TEXT,
    expected_size      INTEGER,
    observed_size      INTEGER,
    expected_checksum  TEXT,
    observed_checksum  TEXT,
    physical_rows      INTEGER,
    rows_at_risk       INTEGER,
    columns_lost       TEXT NOT NULL CHECK (json_type(columns_lost) = 'array'),
    columns_kept       TEXT NOT NULL CHECK (json_type(columns_kept) = 'array'),
    http_status        INTEGER,
    error_code         TEXT,
    request_id         TEXT,
    first_observed_at  TEXT NOT NULL,
    confirmed_at       TEXT,
    recoverable_until  TEXT,
    peers_asked        TEXT NOT NULL CHECK (json_type(peers_asked) = 'array'),
    peers_having       TEXT NOT NULL CHECK (json_type(peers_having) = 'array'),
    proposed_action    TEXT NOT NULL CHECK (proposed_action IN ('none', 'restore', 'refetch', 'drop_fragment', 'drop_index')),
    blocked_by         TEXT NOT NULL CHECK (json_type(blocked_by) = 'array'),
    harmless           INTEGER NOT NULL CHECK (harmless IN (0, 1)),
    -- The deepest and widest look that saw it, since it was last opened. A shallower
    -- look that sees the object there proves nothing against it.
    depth              TEXT NOT NULL CHECK (depth IN ('head', 'footer', 'checksum')),
    versions           TEXT NOT NULL CHECK (versions IN ('current', 'retained', 'all')),
    first_seen_at      TEXT NOT NULL,
    last_seen_at       TEXT NOT NULL,
    damaged_since      TEXT,
    seen_count         INTEGER NOT NULL CHECK (seen_count > 0),
    first_pass_id      TEXT NOT NULL,
    last_pass_id       TEXT NOT NULL,
    resolved_at        TEXT,
    resolution         TEXT CHECK (resolution IN ('present', 'not_named')),
    resolved_pass_id   TEXT,
    acknowledged_until TEXT,
    acknowledged_at    TEXT,
    ack_reason         TEXT,
    ack_actor          TEXT,
    CONSTRAINT findings_times_are_in_order CHECK (first_seen_at <= last_seen_at),
    CONSTRAINT findings_resolution_is_whole CHECK ((resolved_at IS NULL) = (resolution IS NULL) AND (resolved_at IS NULL) = (resolved_pass_id IS NULL)),
    CONSTRAINT findings_ack_is_whole CHECK ((acknowledged_until IS NULL) = (acknowledged_at IS NULL)
        AND (acknowledged_until IS NULL) = (ack_reason IS NULL) AND (acknowledged_until IS NULL) = (ack_actor IS NULL))
) STRICT;
CREATE INDEX findings_open_of_a_target ON findings (target_uri) WHERE resolved_at IS NULL;

-- What each pass said of a finding. findings holds how things stand; this holds how
-- they came to stand so, and goes when its pass goes.
CREATE TABLE pass_findings (
    pass_id      TEXT NOT NULL REFERENCES passes ON DELETE CASCADE,
    finding_id   TEXT NOT NULL REFERENCES findings ON DELETE CASCADE,
    event        TEXT NOT NULL CHECK (event IN ('seen', 'present', 'not_named')),
    verdict      TEXT NOT NULL,
    rows_at_risk INTEGER,
    recorded_at  TEXT NOT NULL,
    PRIMARY KEY (pass_id, finding_id)
) STRICT;
CREATE INDEX pass_findings_of_a_finding ON pass_findings (finding_id, recorded_at);
