-- The ledger: what every pass looked at, found and did.
--
-- Rules that hold everywhere below
--   * A target is known by target_uri, the canonical URI of its dataset. Names
--     (target, store) are what people called it at the time and may change.
--   * Time is this database's clock: reconcile.now() and nothing else. Columns that
--     hold a time of somebody else's clock say so.
--   * NULL means unknown or does not apply; it never means 0.
--   * Closed lists are text with a CHECK, because an enum type cannot lose a value.
--   * Everything that can be said as a constraint is one: a record that would be
--     wrong is refused here, whatever the program believes.

DO $$
BEGIN
    -- CREATE SCHEMA IF NOT EXISTS asks for rights on the database even when the
    -- schema is there; whoever prepared it for us must not need to give them.
    IF to_regnamespace('reconcile') IS NULL THEN
        CREATE SCHEMA reconcile;
    END IF;
END
$$;

CREATE TABLE reconcile.schema_migrations (
    version      bigint      NOT NULL PRIMARY KEY CHECK (version > 0),
    name         text        NOT NULL,
    checksum     text        NOT NULL,
    tool_version text        NOT NULL,
    applied_at   timestamptz NOT NULL
);

-- A function and not CURRENT_TIMESTAMP: time goes on within a transaction, and a
-- lease must be compared with the moment at which it is compared.
CREATE FUNCTION reconcile.now() RETURNS timestamptz
    LANGUAGE sql VOLATILE PARALLEL SAFE
    AS 'SELECT clock_timestamp()';

CREATE TABLE reconcile.passes (
    pass_id              text        NOT NULL PRIMARY KEY CHECK (pass_id <> ''),
    mode                 text        NOT NULL,
    tool_version         text        NOT NULL,
    actor                text        NOT NULL,
    host                 text        NOT NULL,
    reason               text,
    started_at           timestamptz NOT NULL,
    finished_at          timestamptz,
    exit_code            bigint,
    exit_name            text,
    scope_versions       text        NOT NULL CHECK (scope_versions IN ('current', 'retained', 'all')),
    scope_depth          text        NOT NULL CHECK (scope_depth IN ('head', 'footer', 'checksum')),
    scope_roles          text[]      NOT NULL,
    scope_targets_filter text[]      NOT NULL,
    coverage_references  bigint,
    coverage_checked     bigint,
    coverage_ratio       double precision CHECK (coverage_ratio BETWEEN 0 AND 1),
    targets              bigint,
    targets_clean        bigint,
    targets_diverged     bigint,
    targets_repaired     bigint,
    targets_incomplete   bigint,
    targets_refused      bigint,
    targets_unreadable   bigint,
    targets_pending      bigint,
    targets_cooling_down bigint,
    targets_half_deleted bigint,
    targets_rolled_back  bigint,
    targets_locked       bigint,
    targets_failed       bigint,
    references_found     bigint,
    checked              bigint,
    verdicts_present     bigint,
    verdicts_missing     bigint,
    verdicts_recoverable bigint,
    verdicts_lost        bigint,
    verdicts_size_mismatch     bigint,
    verdicts_checksum_mismatch bigint,
    verdicts_unreadable  bigint,
    verdicts_archived    bigint,
    verdicts_pending     bigint,
    verdicts_superseded  bigint,
    verdicts_denied      bigint,
    verdicts_undecided   bigint,
    flapped              bigint,
    findings_carried     bigint,
    rows_at_risk         bigint,
    rows_dropped         bigint,
    bytes_restored       bigint,
    requests_head        bigint,
    requests_get         bigint,
    requests_list        bigint,
    requests_put         bigint,
    requests_throttled   bigint,
    requests_retried     bigint,
    report_uri           text,
    CONSTRAINT passes_end_is_whole CHECK ((finished_at IS NULL) = (exit_code IS NULL) AND (finished_at IS NULL) = (exit_name IS NULL)),
    CONSTRAINT passes_targets_add_up CHECK (targets = targets_clean + targets_diverged + targets_repaired + targets_incomplete
        + targets_refused + targets_unreadable + targets_pending + targets_cooling_down + targets_half_deleted
        + targets_rolled_back + targets_locked + targets_failed)
);
CREATE INDEX passes_started_at ON reconcile.passes (started_at);

CREATE TABLE reconcile.targets (
    target_uri       text        NOT NULL PRIMARY KEY CHECK (target_uri <> ''),
    target           text        NOT NULL,
    store            text        NOT NULL,
    kind             text        NOT NULL,
    first_seen_at    timestamptz NOT NULL,
    last_seen_at     timestamptz NOT NULL,
    last_checked_at  timestamptz,
    last_pass_id     text,
    -- The newest version may only rise: a table whose newest version is lower than
    -- this one was rolled back, or is being deleted newest manifest first.
    highest_version  bigint CHECK (highest_version > 0),
    accepted_version bigint CHECK (accepted_version > 0),
    accepted_at      timestamptz,
    accepted_by      text,
    accepted_reason  text,
    CONSTRAINT targets_acceptance_is_whole CHECK ((accepted_version IS NULL) = (accepted_at IS NULL) AND (accepted_version IS NULL) = (accepted_by IS NULL))
);
CREATE INDEX targets_name ON reconcile.targets (target);

CREATE TABLE reconcile.pass_targets (
    pass_id             text        NOT NULL REFERENCES reconcile.passes ON DELETE CASCADE,
    target_uri          text        NOT NULL REFERENCES reconcile.targets,
    target              text        NOT NULL,
    store               text        NOT NULL,
    kind                text        NOT NULL,
    version             bigint,
    state               text        NOT NULL CHECK (state IN ('clean', 'diverged', 'repaired', 'incomplete', 'refused', 'unreadable',
        'pending', 'cooling_down', 'half_deleted', 'rolled_back', 'locked', 'failed')),
    reason              text,
    references_found    bigint      NOT NULL,
    checked             bigint      NOT NULL,
    findings            bigint      NOT NULL,
    rows_at_risk        bigint,
    live_rows           bigint,
    fragments           bigint,
    pending_generations bigint,
    registry            text CHECK (registry IN ('ok', 'unregistered', 'no_store', 'uri_differs')),
    not_checked         jsonb       NOT NULL,
    recorded_at         timestamptz NOT NULL,
    PRIMARY KEY (pass_id, target_uri)
);
CREATE INDEX pass_targets_of_a_target ON reconcile.pass_targets (target_uri, recorded_at);

CREATE TABLE reconcile.findings (
    finding_id         text        NOT NULL PRIMARY KEY CHECK (length(finding_id) = 32),
    target_uri         text        NOT NULL REFERENCES reconcile.targets,
    target             text        NOT NULL,
    store              text        NOT NULL,
    role               text        NOT NULL CHECK (role IN ('data', 'deletion', 'index', 'overlay', 'row_ids', 'transaction', 'manifest',
        'blob_sidecar', 'wal_manifest', 'wal_generation', 'blob')),
    path               text        NOT NULL,
    url                text        NOT NULL,
    version            bigint,
    scopes             text[]      NOT NULL,
    fragment_id        bigint,
    verdict            text        NOT NULL CHECK (verdict IN ('missing', 'recoverable', 'lost', 'size_mismatch', 'checksum_mismatch',
        'unreadable', 'archived', 'pending', 'denied', 'undecided')),
    reason             text,
    expected_size      bigint,
    observed_size      bigint,
    expected_checksum  text,
    observed_checksum  text,
    physical_rows      bigint,
    rows_at_risk       bigint,
    columns_lost       text[]      NOT NULL,
    columns_kept       text[]      NOT NULL,
    http_status        bigint,
    error_code         text,
    request_id         text,
    first_observed_at  timestamptz NOT NULL,
    confirmed_at       timestamptz,
    recoverable_until  timestamptz,
    peers_asked        text[]      NOT NULL,
    peers_having       text[]      NOT NULL,
    proposed_action    text        NOT NULL CHECK (proposed_action IN ('none', 'restore', 'refetch', 'drop_fragment', 'drop_index')),
    blocked_by         text[]      NOT NULL,
    harmless           boolean     NOT NULL,
    -- The deepest and widest look that saw it, since it was last opened. A shallower
    -- look that sees the object there proves nothing against it.
    depth              text        NOT NULL CHECK (depth IN ('head', 'footer', 'checksum')),
    versions           text        NOT NULL CHECK (versions IN ('current', 'retained', 'all')),
    first_seen_at      timestamptz NOT NULL,
    last_seen_at       timestamptz NOT NULL,
    damaged_since      timestamptz,
    seen_count         bigint      NOT NULL CHECK (seen_count > 0),
    first_pass_id      text        NOT NULL,
    last_pass_id       text        NOT NULL,
    resolved_at        timestamptz,
    resolution         text CHECK (resolution IN ('present', 'not_named')),
    resolved_pass_id   text,
    acknowledged_until timestamptz,
    acknowledged_at    timestamptz,
    ack_reason         text,
    ack_actor          text,
    CONSTRAINT findings_times_are_in_order CHECK (first_seen_at <= last_seen_at),
    CONSTRAINT findings_resolution_is_whole CHECK ((resolved_at IS NULL) = (resolution IS NULL) AND (resolved_at IS NULL) = (resolved_pass_id IS NULL)),
    CONSTRAINT findings_ack_is_whole CHECK ((acknowledged_until IS NULL) = (acknowledged_at IS NULL)
        AND (acknowledged_until IS NULL) = (ack_reason IS NULL) AND (acknowledged_until IS NULL) = (ack_actor IS NULL))
);
CREATE INDEX findings_open_of_a_target ON reconcile.findings (target_uri) WHERE resolved_at IS NULL;

-- What each pass said of a finding. findings holds how things stand; this holds how
-- they came to stand so, and goes when its pass goes.
CREATE TABLE reconcile.pass_findings (
    pass_id      text        NOT NULL REFERENCES reconcile.passes ON DELETE CASCADE,
    finding_id   text        NOT NULL REFERENCES reconcile.findings ON DELETE CASCADE,
    event        text        NOT NULL CHECK (event IN ('seen', 'present', 'not_named')),
    verdict      text        NOT NULL,
    rows_at_risk bigint,
    recorded_at  timestamptz NOT NULL,
    PRIMARY KEY (pass_id, finding_id)
);
CREATE INDEX pass_findings_of_a_finding ON reconcile.pass_findings (finding_id, recorded_at);

COMMENT ON SCHEMA reconcile IS 'What reconcile looked at, found and did. People read the views; the tables belong to the program, except that task_failures takes INSERTs.';
COMMENT ON FUNCTION reconcile.now() IS 'The clock of the ledger: every time in it, and every comparison with one, comes from here.';

COMMENT ON TABLE reconcile.schema_migrations IS 'Which migrations of the schema were applied.';
COMMENT ON COLUMN reconcile.schema_migrations.version IS 'Number of the migration.';
COMMENT ON COLUMN reconcile.schema_migrations.name IS 'Its name.';
COMMENT ON COLUMN reconcile.schema_migrations.checksum IS 'SHA-256 (hex) of the text that was applied.';
COMMENT ON COLUMN reconcile.schema_migrations.tool_version IS 'Version of reconcile that applied it.';
COMMENT ON COLUMN reconcile.schema_migrations.applied_at IS 'When.';

COMMENT ON TABLE reconcile.passes IS 'One row per pass: what was asked, how it ended, and its totals.';
COMMENT ON COLUMN reconcile.passes.pass_id IS 'Identity of the pass: a UUIDv7.';
COMMENT ON COLUMN reconcile.passes.mode IS 'off (look only), restore or full.';
COMMENT ON COLUMN reconcile.passes.tool_version IS 'Version of reconcile.';
COMMENT ON COLUMN reconcile.passes.actor IS 'Who ran it.';
COMMENT ON COLUMN reconcile.passes.host IS 'Where it ran.';
COMMENT ON COLUMN reconcile.passes.reason IS 'What the user gave as --reason; NULL when nothing.';
COMMENT ON COLUMN reconcile.passes.started_at IS 'Start.';
COMMENT ON COLUMN reconcile.passes.finished_at IS 'End; NULL while it runs, and for ever when it was killed. All figures below are NULL until then.';
COMMENT ON COLUMN reconcile.passes.exit_code IS 'Exit code of the process.';
COMMENT ON COLUMN reconcile.passes.exit_name IS 'Its name.';
COMMENT ON COLUMN reconcile.passes.scope_versions IS 'Versions looked at: current, retained or all.';
COMMENT ON COLUMN reconcile.passes.scope_depth IS 'How closely: head, footer or checksum.';
COMMENT ON COLUMN reconcile.passes.scope_roles IS 'Roles looked at; empty means every one that is built.';
COMMENT ON COLUMN reconcile.passes.scope_targets_filter IS 'Target patterns asked for; empty means all.';
COMMENT ON COLUMN reconcile.passes.coverage_references IS 'References that were to be looked at.';
COMMENT ON COLUMN reconcile.passes.coverage_checked IS 'Those that were looked at.';
COMMENT ON COLUMN reconcile.passes.coverage_ratio IS 'Checked divided by references; NULL when there was nothing.';
COMMENT ON COLUMN reconcile.passes.targets IS 'Targets of the pass; the sum of the targets_ columns.';
COMMENT ON COLUMN reconcile.passes.targets_clean IS 'Targets whose state is clean.';
COMMENT ON COLUMN reconcile.passes.targets_diverged IS 'Targets whose state is diverged.';
COMMENT ON COLUMN reconcile.passes.targets_repaired IS 'Targets whose state is repaired.';
COMMENT ON COLUMN reconcile.passes.targets_incomplete IS 'Targets whose state is incomplete.';
COMMENT ON COLUMN reconcile.passes.targets_refused IS 'Targets whose state is refused.';
COMMENT ON COLUMN reconcile.passes.targets_unreadable IS 'Targets whose state is unreadable.';
COMMENT ON COLUMN reconcile.passes.targets_pending IS 'Targets whose state is pending.';
COMMENT ON COLUMN reconcile.passes.targets_cooling_down IS 'Targets whose state is cooling_down.';
COMMENT ON COLUMN reconcile.passes.targets_half_deleted IS 'Targets whose state is half_deleted.';
COMMENT ON COLUMN reconcile.passes.targets_rolled_back IS 'Targets whose state is rolled_back.';
COMMENT ON COLUMN reconcile.passes.targets_locked IS 'Targets whose state is locked.';
COMMENT ON COLUMN reconcile.passes.targets_failed IS 'Targets whose state is failed.';
COMMENT ON COLUMN reconcile.passes.references_found IS 'References found ("references" in reports and JSON, which is a keyword here).';
COMMENT ON COLUMN reconcile.passes.checked IS 'References that were looked at.';
COMMENT ON COLUMN reconcile.passes.verdicts_present IS 'References whose verdict is present.';
COMMENT ON COLUMN reconcile.passes.verdicts_missing IS 'References whose verdict is missing.';
COMMENT ON COLUMN reconcile.passes.verdicts_recoverable IS 'References whose verdict is recoverable.';
COMMENT ON COLUMN reconcile.passes.verdicts_lost IS 'References whose verdict is lost.';
COMMENT ON COLUMN reconcile.passes.verdicts_size_mismatch IS 'References whose verdict is size_mismatch.';
COMMENT ON COLUMN reconcile.passes.verdicts_checksum_mismatch IS 'References whose verdict is checksum_mismatch.';
COMMENT ON COLUMN reconcile.passes.verdicts_unreadable IS 'References whose verdict is unreadable.';
COMMENT ON COLUMN reconcile.passes.verdicts_archived IS 'References whose verdict is archived.';
COMMENT ON COLUMN reconcile.passes.verdicts_pending IS 'References whose verdict is pending.';
COMMENT ON COLUMN reconcile.passes.verdicts_superseded IS 'References whose verdict is superseded.';
COMMENT ON COLUMN reconcile.passes.verdicts_denied IS 'References whose verdict is denied.';
COMMENT ON COLUMN reconcile.passes.verdicts_undecided IS 'References whose verdict is undecided.';
COMMENT ON COLUMN reconcile.passes.flapped IS 'References missing at the first look and there at the second.';
COMMENT ON COLUMN reconcile.passes.findings_carried IS 'Open findings of earlier passes that this one did not look at.';
COMMENT ON COLUMN reconcile.passes.rows_at_risk IS 'Live rows that cannot be read, each fragment counted once.';
COMMENT ON COLUMN reconcile.passes.rows_dropped IS 'Live rows that tables lost by repairs of this pass.';
COMMENT ON COLUMN reconcile.passes.bytes_restored IS 'Bytes brought back by repairs of this pass.';
COMMENT ON COLUMN reconcile.passes.requests_head IS 'HEAD requests sent to stores.';
COMMENT ON COLUMN reconcile.passes.requests_get IS 'GET requests sent to stores.';
COMMENT ON COLUMN reconcile.passes.requests_list IS 'LIST requests sent to stores.';
COMMENT ON COLUMN reconcile.passes.requests_put IS 'PUT requests sent to stores.';
COMMENT ON COLUMN reconcile.passes.requests_throttled IS 'Answers that asked to slow down.';
COMMENT ON COLUMN reconcile.passes.requests_retried IS 'Requests sent again.';
COMMENT ON COLUMN reconcile.passes.report_uri IS 'Where the reports of the pass lie; NULL when none were written.';

COMMENT ON TABLE reconcile.targets IS 'One row per target that any pass ever met.';
COMMENT ON COLUMN reconcile.targets.target_uri IS 'Canonical URI of the dataset: the key of everything that is remembered about the target.';
COMMENT ON COLUMN reconcile.targets.target IS 'Name of the target as users type it.';
COMMENT ON COLUMN reconcile.targets.store IS 'Configured name of the store, else its root URI.';
COMMENT ON COLUMN reconcile.targets.kind IS 'rollout, generic, datagen, system, table or blobs.';
COMMENT ON COLUMN reconcile.targets.first_seen_at IS 'When a pass first met it.';
COMMENT ON COLUMN reconcile.targets.last_seen_at IS 'When a pass last met it.';
COMMENT ON COLUMN reconcile.targets.last_checked_at IS 'When a pass last looked at it; meeting it locked or cooled down is no look.';
COMMENT ON COLUMN reconcile.targets.last_pass_id IS 'Pass that last met it.';
COMMENT ON COLUMN reconcile.targets.highest_version IS 'Highest version ever seen; it falls only when a lower one is accepted.';
COMMENT ON COLUMN reconcile.targets.accepted_version IS 'Version that a user accepted although it is lower (--accept-version); NULL when none ever was.';
COMMENT ON COLUMN reconcile.targets.accepted_at IS 'When.';
COMMENT ON COLUMN reconcile.targets.accepted_by IS 'By whom.';
COMMENT ON COLUMN reconcile.targets.accepted_reason IS 'Why, as given.';

COMMENT ON TABLE reconcile.pass_targets IS 'One row per pass and target: what the target turned out to be.';
COMMENT ON COLUMN reconcile.pass_targets.pass_id IS 'The pass.';
COMMENT ON COLUMN reconcile.pass_targets.target_uri IS 'Canonical URI of the dataset: the key of everything that is remembered about the target.';
COMMENT ON COLUMN reconcile.pass_targets.target IS 'Name of the target as users type it.';
COMMENT ON COLUMN reconcile.pass_targets.store IS 'Configured name of the store, else its root URI.';
COMMENT ON COLUMN reconcile.pass_targets.kind IS 'rollout, generic, datagen, system, table or blobs.';
COMMENT ON COLUMN reconcile.pass_targets.version IS 'Newest version; NULL when there is none to tell.';
COMMENT ON COLUMN reconcile.pass_targets.state IS 'clean, diverged, repaired, incomplete, refused, unreadable, pending, cooling_down, half_deleted, rolled_back, locked or failed.';
COMMENT ON COLUMN reconcile.pass_targets.reason IS 'Why, as one word; NULL when the state says it all.';
COMMENT ON COLUMN reconcile.pass_targets.references_found IS 'References found ("references" in reports and JSON, which is a keyword here).';
COMMENT ON COLUMN reconcile.pass_targets.checked IS 'References that were looked at.';
COMMENT ON COLUMN reconcile.pass_targets.findings IS 'References that are not present.';
COMMENT ON COLUMN reconcile.pass_targets.rows_at_risk IS 'Live rows that cannot be read, each fragment counted once; NULL when unknown.';
COMMENT ON COLUMN reconcile.pass_targets.live_rows IS 'Live rows of the newest version; NULL when unknown.';
COMMENT ON COLUMN reconcile.pass_targets.fragments IS 'Fragments of the newest version; NULL when unknown.';
COMMENT ON COLUMN reconcile.pass_targets.pending_generations IS 'Write-ahead-log generations not merged yet; NULL when unknown.';
COMMENT ON COLUMN reconcile.pass_targets.registry IS 'ok, unregistered, no_store or uri_differs; NULL when no registry was read.';
COMMENT ON COLUMN reconcile.pass_targets.not_checked IS 'Roles that exist and were not looked at: [{role, count, reason}].';
COMMENT ON COLUMN reconcile.pass_targets.recorded_at IS 'When this was written.';

COMMENT ON TABLE reconcile.findings IS 'One row per reference that was ever found not present, as it stands now.';
COMMENT ON COLUMN reconcile.findings.finding_id IS 'Identity over passes and hosts: first 32 hex digits of SHA-256(canonical dataset URI, 0, role, 0, canonical object URL).';
COMMENT ON COLUMN reconcile.findings.target_uri IS 'Canonical URI of the dataset: the key of everything that is remembered about the target.';
COMMENT ON COLUMN reconcile.findings.target IS 'Name of the target as users type it.';
COMMENT ON COLUMN reconcile.findings.store IS 'Configured name of the store, else its root URI.';
COMMENT ON COLUMN reconcile.findings.role IS 'What the object is to its target.';
COMMENT ON COLUMN reconcile.findings.path IS 'The object as the metadata names it.';
COMMENT ON COLUMN reconcile.findings.url IS 'Where that resolves to; empty when it does not resolve.';
COMMENT ON COLUMN reconcile.findings.version IS 'Newest version in scope that names the object; NULL when there is none to tell.';
COMMENT ON COLUMN reconcile.findings.scopes IS 'Where the object is named: latest, tag:x, branch:y, version:n.';
COMMENT ON COLUMN reconcile.findings.fragment_id IS 'Fragment of the object; NULL when it belongs to none.';
COMMENT ON COLUMN reconcile.findings.verdict IS 'missing, recoverable, lost, size_mismatch, checksum_mismatch, unreadable, archived, pending, denied or undecided.';
COMMENT ON COLUMN reconcile.findings.reason IS 'Why, as one word; NULL when the verdict says it all.';
COMMENT ON COLUMN reconcile.findings.expected_size IS 'Recorded size in bytes; NULL when none is recorded.';
COMMENT ON COLUMN reconcile.findings.observed_size IS 'Size in bytes that the store told; NULL when it told none.';
COMMENT ON COLUMN reconcile.findings.expected_checksum IS 'Recorded checksum (sha256:<hex>, crc32c:<base64>, md5:<hex>); NULL when none is recorded.';
COMMENT ON COLUMN reconcile.findings.observed_checksum IS 'Checksum of the bytes that are there; NULL when it was not computed.';
COMMENT ON COLUMN reconcile.findings.physical_rows IS 'Rows of the fragment, deleted ones included; NULL when unknown.';
COMMENT ON COLUMN reconcile.findings.rows_at_risk IS 'Live rows that cannot be read without the object; NULL when unknown. Count a fragment once: several objects of it give the same number.';
COMMENT ON COLUMN reconcile.findings.columns_lost IS 'Columns whose bytes the object holds.';
COMMENT ON COLUMN reconcile.findings.columns_kept IS 'Columns of the fragment that other files still hold.';
COMMENT ON COLUMN reconcile.findings.http_status IS 'Status of the answer that decided; NULL when there was none.';
COMMENT ON COLUMN reconcile.findings.error_code IS 'Error code of the store (NoSuchKey); NULL when it told none.';
COMMENT ON COLUMN reconcile.findings.request_id IS 'Request id of that answer, for the store''s support.';
COMMENT ON COLUMN reconcile.findings.first_observed_at IS 'First look of the last pass that saw it, by the clock of that process.';
COMMENT ON COLUMN reconcile.findings.confirmed_at IS 'Second look that agreed, by the clock of that process; NULL when there was none.';
COMMENT ON COLUMN reconcile.findings.recoverable_until IS 'When the copy that can be brought back expires; NULL when the store does not tell.';
COMMENT ON COLUMN reconcile.findings.peers_asked IS 'Peers that were asked for a copy.';
COMMENT ON COLUMN reconcile.findings.peers_having IS 'Peers that have one.';
COMMENT ON COLUMN reconcile.findings.proposed_action IS 'What a full repair would do next: none, restore, refetch, drop_fragment, drop_index.';
COMMENT ON COLUMN reconcile.findings.blocked_by IS 'What keeps it from doing so; empty when nothing does.';
COMMENT ON COLUMN reconcile.findings.harmless IS 'Whether the loss breaks nothing (a transaction file, a file whose fields are all dropped).';
COMMENT ON COLUMN reconcile.findings.depth IS 'How closely the closest look was that saw it since it was opened: head, footer or checksum.';
COMMENT ON COLUMN reconcile.findings.versions IS 'How wide the widest look was that saw it since it was opened: current, retained or all.';
COMMENT ON COLUMN reconcile.findings.first_seen_at IS 'When any pass first saw it, in all its life.';
COMMENT ON COLUMN reconcile.findings.last_seen_at IS 'When a pass last saw it.';
COMMENT ON COLUMN reconcile.findings.damaged_since IS 'When a pass first saw it damaged, missing included, since it was opened; NULL while no pass did. Scheduled drops count from here.';
COMMENT ON COLUMN reconcile.findings.seen_count IS 'How many passes saw it.';
COMMENT ON COLUMN reconcile.findings.first_pass_id IS 'Pass that first saw it.';
COMMENT ON COLUMN reconcile.findings.last_pass_id IS 'Pass that last saw it.';
COMMENT ON COLUMN reconcile.findings.resolved_at IS 'When a pass as deep and as wide saw it resolved; NULL while it is open.';
COMMENT ON COLUMN reconcile.findings.resolution IS 'present or not_named; NULL while it is open.';
COMMENT ON COLUMN reconcile.findings.resolved_pass_id IS 'Pass that saw so.';
COMMENT ON COLUMN reconcile.findings.acknowledged_until IS 'Until when it is accepted (reconcile ack): it stays in reports and leaves the exit code; NULL when it is not.';
COMMENT ON COLUMN reconcile.findings.acknowledged_at IS 'When that was said.';
COMMENT ON COLUMN reconcile.findings.ack_reason IS 'Why, as given.';
COMMENT ON COLUMN reconcile.findings.ack_actor IS 'By whom.';

COMMENT ON TABLE reconcile.pass_findings IS 'What each pass said of a finding.';
COMMENT ON COLUMN reconcile.pass_findings.pass_id IS 'The pass.';
COMMENT ON COLUMN reconcile.pass_findings.finding_id IS 'The finding.';
COMMENT ON COLUMN reconcile.pass_findings.event IS 'seen (it is not present), present or not_named (it is resolved).';
COMMENT ON COLUMN reconcile.pass_findings.verdict IS 'Verdict at that time.';
COMMENT ON COLUMN reconcile.pass_findings.rows_at_risk IS 'Live rows at risk at that time; NULL when unknown.';
COMMENT ON COLUMN reconcile.pass_findings.recorded_at IS 'When this was written.';
