-- What proves a copy that was brought back, which record refers to a lost blob, and how
-- far a look at a large collection has come. Explained in ../postgres.

-- A table takes a new constraint only with a column.
ALTER TABLE repairs ADD COLUMN proof TEXT CONSTRAINT repairs_bytes_are_told CHECK (action NOT IN ('restore', 'refetch') OR state <> 'applied'
    OR committed_version IS NOT NULL OR source IS NOT NULL AND bytes_restored IS NOT NULL);
ALTER TABLE repairs ADD COLUMN duration_ms INTEGER CHECK (duration_ms >= 0);

ALTER TABLE findings ADD COLUMN record TEXT;

CREATE TABLE look_checkpoints (
    target_uri       TEXT NOT NULL PRIMARY KEY CHECK (target_uri <> ''),
    pass_id          TEXT NOT NULL CHECK (pass_id <> ''),
    position         TEXT NOT NULL CHECK (position <> ''),
    source_id        TEXT NOT NULL,
    references_found INTEGER NOT NULL CHECK (references_found >= 0),
    checked          INTEGER NOT NULL CHECK (checked >= 0),
    present          INTEGER NOT NULL CHECK (present >= 0),
    suspects         TEXT NOT NULL CHECK (json_type(suspects) = 'array'),
    updated_at       TEXT NOT NULL,
    CONSTRAINT look_checkpoints_add_up CHECK (present <= checked AND checked <= references_found)
) STRICT;

DROP VIEW repair_history;
DROP VIEW finding_history;
DROP VIEW open_findings;

CREATE VIEW open_findings AS
SELECT f.finding_id, f.target, f.store, f.target_uri, f.role, f.path, f.url, f.version, f.scopes, f.fragment_id, f.verdict, f.reason,
    f.verdict IN ('missing', 'recoverable', 'lost', 'size_mismatch', 'checksum_mismatch', 'unreadable', 'archived') AND NOT f.harmless AS damaged,
    f.harmless, f.expected_size, f.observed_size, f.expected_checksum, f.observed_checksum, f.physical_rows, f.rows_at_risk,
    f.columns_lost, f.columns_kept, f.http_status, f.error_code, f.request_id, f.first_observed_at, f.confirmed_at, f.recoverable_until,
    f.peers_asked, f.peers_having, f.proposed_action, f.blocked_by, f.depth, f.versions, f.first_seen_at, f.last_seen_at, f.damaged_since,
    f.seen_count, f.first_pass_id, f.last_pass_id,
    f.acknowledged_until IS NOT NULL AND f.acknowledged_until > (SELECT now FROM clock) AS acknowledged,
    f.acknowledged_until, f.ack_reason, f.ack_actor, f.record
FROM findings f
WHERE f.resolved_at IS NULL;

CREATE VIEW finding_history AS
SELECT e.pass_id, e.recorded_at, e.event, e.verdict, e.rows_at_risk, f.finding_id, f.target, f.store, f.target_uri, f.role, f.path, f.url, f.fragment_id,
    f.first_seen_at, f.resolved_at, f.resolution, f.record
FROM pass_findings e
JOIN findings f ON f.finding_id = e.finding_id;

CREATE VIEW repair_history AS
SELECT r.repair_id, r.pass_id, r.target, r.store, r.target_uri, r.action, r.state, r.trigger, r.trigger_error, r.reason, r.actor, r.host,
    r.read_version, r.committed_version, r.transaction_uuid, r.index_uuid, r.files, r.fragments, r.rows_dropped, r.bytes_restored,
    r.source, r.error, r.manifest_name, r.manifest_size, r.manifest_sha256, r.manifest_bytes IS NOT NULL AS manifest_kept,
    r.created_at, r.intended_at, r.settled_at, r.verified_at, r.proof, r.duration_ms
FROM repairs r;
