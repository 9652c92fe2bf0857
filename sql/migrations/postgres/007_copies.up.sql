-- What proves a copy that was brought back, which record refers to a lost blob, and how
-- far a look at a large collection has come.

ALTER TABLE reconcile.repairs ADD COLUMN proof text;
ALTER TABLE reconcile.repairs ADD COLUMN duration_ms bigint CHECK (duration_ms >= 0);
-- Bytes that were written somewhere came from somewhere. An undo is a restore too, and
-- is a commit that brings no bytes.
ALTER TABLE reconcile.repairs ADD CONSTRAINT repairs_bytes_are_told CHECK (action NOT IN ('restore', 'refetch') OR state <> 'applied'
    OR committed_version IS NOT NULL OR source IS NOT NULL AND bytes_restored IS NOT NULL);

ALTER TABLE reconcile.findings ADD COLUMN record text;

-- Without references to targets and passes: where a look stands is thrown away when it
-- is old, whatever became of them.
CREATE TABLE reconcile.look_checkpoints (
    target_uri       text        NOT NULL PRIMARY KEY CHECK (target_uri <> ''),
    pass_id          text        NOT NULL CHECK (pass_id <> ''),
    position         text        NOT NULL CHECK (position <> ''),
    source_id        text        NOT NULL,
    references_found bigint      NOT NULL CHECK (references_found >= 0),
    checked          bigint      NOT NULL CHECK (checked >= 0),
    present          bigint      NOT NULL CHECK (present >= 0),
    suspects         jsonb       NOT NULL CHECK (jsonb_typeof(suspects) = 'array'),
    updated_at       timestamptz NOT NULL,
    CONSTRAINT look_checkpoints_add_up CHECK (present <= checked AND checked <= references_found)
);

COMMENT ON COLUMN reconcile.repairs.proof IS 'What proved the copy that was brought back (checksum sha256); NULL when none was, and for commits.';
COMMENT ON COLUMN reconcile.repairs.duration_ms IS 'Milliseconds that the attempt took; NULL when not measured.';
COMMENT ON COLUMN reconcile.findings.record IS 'Record or records that refer to the blob; NULL when not told, and for other roles.';

COMMENT ON TABLE reconcile.look_checkpoints IS 'How far a look at a collection has come, so that one that broke off is gone on with. Rows older than 7 days are not used.';
COMMENT ON COLUMN reconcile.look_checkpoints.target_uri IS 'Canonical URI of the collection: the key of everything that is remembered about the target.';
COMMENT ON COLUMN reconcile.look_checkpoints.pass_id IS 'Pass that wrote it.';
COMMENT ON COLUMN reconcile.look_checkpoints.position IS 'Where to go on, in the words of the source of references; what a text cannot hold stands as \x and hex digits.';
COMMENT ON COLUMN reconcile.look_checkpoints.source_id IS 'What the position is valid for: another source of references begins anew.';
COMMENT ON COLUMN reconcile.look_checkpoints.references_found IS 'References up to the position, without the suspects: those are looked at again and counted then.';
COMMENT ON COLUMN reconcile.look_checkpoints.checked IS 'Those that were looked at.';
COMMENT ON COLUMN reconcile.look_checkpoints.present IS 'Those that are present.';
COMMENT ON COLUMN reconcile.look_checkpoints.suspects IS 'Keys of all other references up to the position: they were not found present (JSON array, 100,000 at most), in the words of position.';
COMMENT ON COLUMN reconcile.look_checkpoints.updated_at IS 'When it was written.';

-- Columns are added at the end, so that a view keeps its rights, its comments and those
-- who use it.
CREATE OR REPLACE VIEW reconcile.open_findings AS
SELECT f.finding_id, f.target, f.store, f.target_uri, f.role, f.path, f.url, f.version, f.scopes, f.fragment_id, f.verdict, f.reason,
    f.verdict IN ('missing', 'recoverable', 'lost', 'size_mismatch', 'checksum_mismatch', 'unreadable', 'archived') AND NOT f.harmless AS damaged,
    f.harmless, f.expected_size, f.observed_size, f.expected_checksum, f.observed_checksum, f.physical_rows, f.rows_at_risk,
    f.columns_lost, f.columns_kept, f.http_status, f.error_code, f.request_id, f.first_observed_at, f.confirmed_at, f.recoverable_until,
    f.peers_asked, f.peers_having, f.proposed_action, f.blocked_by, f.depth, f.versions, f.first_seen_at, f.last_seen_at, f.damaged_since,
    f.seen_count, f.first_pass_id, f.last_pass_id,
    f.acknowledged_until IS NOT NULL AND f.acknowledged_until > (SELECT reconcile.now()) AS acknowledged,
    f.acknowledged_until, f.ack_reason, f.ack_actor, f.record
FROM reconcile.findings f
WHERE f.resolved_at IS NULL;

CREATE OR REPLACE VIEW reconcile.finding_history AS
SELECT e.pass_id, e.recorded_at, e.event, e.verdict, e.rows_at_risk, f.finding_id, f.target, f.store, f.target_uri, f.role, f.path, f.url, f.fragment_id,
    f.first_seen_at, f.resolved_at, f.resolution, f.record
FROM reconcile.pass_findings e
JOIN reconcile.findings f ON f.finding_id = e.finding_id;

CREATE OR REPLACE VIEW reconcile.repair_history AS
SELECT r.repair_id, r.pass_id, r.target, r.store, r.target_uri, r.action, r.state, r.trigger, r.trigger_error, r.reason, r.actor, r.host,
    r.read_version, r.committed_version, r.transaction_uuid, r.index_uuid, r.files, r.fragments, r.rows_dropped, r.bytes_restored,
    r.source, r.error, r.manifest_name, r.manifest_size, r.manifest_sha256, r.manifest_bytes IS NOT NULL AS manifest_kept,
    r.created_at, r.intended_at, r.settled_at, r.verified_at, r.proof, r.duration_ms
FROM reconcile.repairs r;

-- The new columns of a view say what the columns say that they come from.
DO $$
DECLARE
    c record;
BEGIN
    FOR c IN
        SELECT v.relname AS view_name, a.attname AS column_name, col_description(t.oid, b.attnum) AS description
        FROM (VALUES ('open_findings', 'findings'), ('finding_history', 'findings'), ('repair_history', 'repairs')) AS source (view_name, table_name)
        JOIN pg_class v ON v.relname = source.view_name AND v.relnamespace = 'reconcile'::regnamespace
        JOIN pg_class t ON t.relname = source.table_name AND t.relnamespace = 'reconcile'::regnamespace
        JOIN pg_attribute a ON a.attrelid = v.oid AND a.attname IN ('record', 'proof', 'duration_ms')
        JOIN pg_attribute b ON b.attrelid = t.oid AND b.attname = a.attname
    LOOP
        EXECUTE format('COMMENT ON COLUMN reconcile.%I.%I IS %L', c.view_name, c.column_name, c.description);
    END LOOP;
END
$$;
