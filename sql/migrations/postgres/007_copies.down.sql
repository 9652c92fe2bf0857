-- A view loses a column only by being made anew, and with it those that read it.
DROP VIEW reconcile.target_health;
DROP VIEW reconcile.open_findings;
DROP VIEW reconcile.finding_history;
DROP VIEW reconcile.repair_history;
DROP TABLE reconcile.look_checkpoints;
ALTER TABLE reconcile.findings DROP COLUMN record;
ALTER TABLE reconcile.repairs DROP CONSTRAINT repairs_bytes_are_told;
ALTER TABLE reconcile.repairs DROP COLUMN duration_ms;
ALTER TABLE reconcile.repairs DROP COLUMN proof;

CREATE VIEW reconcile.open_findings AS
SELECT f.finding_id, f.target, f.store, f.target_uri, f.role, f.path, f.url, f.version, f.scopes, f.fragment_id, f.verdict, f.reason,
    f.verdict IN ('missing', 'recoverable', 'lost', 'size_mismatch', 'checksum_mismatch', 'unreadable', 'archived') AND NOT f.harmless AS damaged,
    f.harmless, f.expected_size, f.observed_size, f.expected_checksum, f.observed_checksum, f.physical_rows, f.rows_at_risk,
    f.columns_lost, f.columns_kept, f.http_status, f.error_code, f.request_id, f.first_observed_at, f.confirmed_at, f.recoverable_until,
    f.peers_asked, f.peers_having, f.proposed_action, f.blocked_by, f.depth, f.versions, f.first_seen_at, f.last_seen_at, f.damaged_since,
    f.seen_count, f.first_pass_id, f.last_pass_id,
    f.acknowledged_until IS NOT NULL AND f.acknowledged_until > (SELECT reconcile.now()) AS acknowledged,
    f.acknowledged_until, f.ack_reason, f.ack_actor
FROM reconcile.findings f
WHERE f.resolved_at IS NULL;

CREATE VIEW reconcile.finding_history AS
SELECT e.pass_id, e.recorded_at, e.event, e.verdict, e.rows_at_risk, f.finding_id, f.target, f.store, f.target_uri, f.role, f.path, f.url, f.fragment_id,
    f.first_seen_at, f.resolved_at, f.resolution
FROM reconcile.pass_findings e
JOIN reconcile.findings f ON f.finding_id = e.finding_id;

CREATE VIEW reconcile.repair_history AS
SELECT r.repair_id, r.pass_id, r.target, r.store, r.target_uri, r.action, r.state, r.trigger, r.trigger_error, r.reason, r.actor, r.host,
    r.read_version, r.committed_version, r.transaction_uuid, r.index_uuid, r.files, r.fragments, r.rows_dropped, r.bytes_restored,
    r.source, r.error, r.manifest_name, r.manifest_size, r.manifest_sha256, r.manifest_bytes IS NOT NULL AS manifest_kept,
    r.created_at, r.intended_at, r.settled_at, r.verified_at
FROM reconcile.repairs r;

CREATE VIEW reconcile.target_health AS
SELECT t.target, t.store, t.kind, t.target_uri, p.state, p.reason, p.version, t.highest_version, p.live_rows, p.fragments, p.pending_generations,
    p.registry, t.first_seen_at, t.last_seen_at, t.last_checked_at, t.last_pass_id,
    coalesce(f.open_findings, 0) AS open_findings, coalesce(f.damaged_objects, 0) AS damaged_objects, coalesce(f.acknowledged, 0) AS acknowledged,
    k.rows_at_risk, f.damaged_since,
    cc.cooldown_until AS check_cooldown_until, cr.cooldown_until AS repair_cooldown_until,
    coalesce(r.unsettled, 0) AS unsettled_repairs, r.last_applied_at AS last_repaired_at, coalesce(r.rows_dropped, 0) AS rows_dropped
FROM reconcile.targets t
LEFT JOIN reconcile.pass_targets p ON p.pass_id = t.last_pass_id AND p.target_uri = t.target_uri
LEFT JOIN (
    SELECT target_uri, count(*) AS open_findings, count(*) FILTER (WHERE damaged) AS damaged_objects,
        count(*) FILTER (WHERE acknowledged) AS acknowledged, min(damaged_since) AS damaged_since
    FROM reconcile.open_findings GROUP BY target_uri
) f ON f.target_uri = t.target_uri
LEFT JOIN (
    -- Several objects of one fragment put the same rows at risk: a fragment counts once.
    SELECT target_uri, CAST(sum(fragment_rows) AS bigint) AS rows_at_risk FROM (
        SELECT target_uri, max(rows_at_risk) AS fragment_rows FROM reconcile.open_findings
        WHERE damaged GROUP BY target_uri, coalesce(CAST(fragment_id AS text), finding_id)
    ) g GROUP BY target_uri
) k ON k.target_uri = t.target_uri
LEFT JOIN reconcile.active_cooldowns cc ON cc.kind = 'check' AND cc.target_uri = t.target_uri
LEFT JOIN reconcile.active_cooldowns cr ON cr.kind = 'repair' AND cr.target_uri = t.target_uri
LEFT JOIN (
    SELECT target_uri, count(*) FILTER (WHERE state IN ('intended', 'uncertain')) AS unsettled,
        max(settled_at) FILTER (WHERE state = 'applied') AS last_applied_at, CAST(sum(rows_dropped) AS bigint) AS rows_dropped
    FROM reconcile.repairs GROUP BY target_uri
) r ON r.target_uri = t.target_uri;

COMMENT ON VIEW reconcile.open_findings IS 'Findings that are open.';
COMMENT ON VIEW reconcile.finding_history IS 'What each pass said of each finding.';
COMMENT ON VIEW reconcile.repair_history IS 'Repairs, without the bytes that are kept for undo.';
COMMENT ON VIEW reconcile.target_health IS 'One row per target: how it stands.';
COMMENT ON COLUMN reconcile.open_findings.damaged IS 'Whether the verdict is damage and the loss not harmless.';
COMMENT ON COLUMN reconcile.open_findings.acknowledged IS 'Whether it is accepted for now.';
COMMENT ON COLUMN reconcile.repair_history.manifest_kept IS 'Whether the bytes of the manifest before the repair are kept.';
COMMENT ON COLUMN reconcile.target_health.open_findings IS 'Its open findings.';
COMMENT ON COLUMN reconcile.target_health.damaged_objects IS 'Those that are damage.';
COMMENT ON COLUMN reconcile.target_health.acknowledged IS 'Those that are accepted for now.';
COMMENT ON COLUMN reconcile.target_health.rows_at_risk IS 'Live rows that cannot be read, each fragment counted once; NULL when unknown or none.';
COMMENT ON COLUMN reconcile.target_health.damaged_since IS 'Since when the oldest open damage is known; NULL when there is none.';
COMMENT ON COLUMN reconcile.target_health.check_cooldown_until IS 'Until when checks are skipped; NULL when they are not.';
COMMENT ON COLUMN reconcile.target_health.repair_cooldown_until IS 'Until when repairs are skipped; NULL when they are not.';
COMMENT ON COLUMN reconcile.target_health.unsettled_repairs IS 'Repairs whose effect is not known yet.';
COMMENT ON COLUMN reconcile.target_health.last_repaired_at IS 'When a repair was last applied; NULL when none was.';
COMMENT ON COLUMN reconcile.target_health.rows_dropped IS 'Live rows that it lost by repairs so far.';
COMMENT ON COLUMN reconcile.target_health.state IS 'State at the last pass.';
COMMENT ON COLUMN reconcile.target_health.reason IS 'Reason of that state.';
COMMENT ON COLUMN reconcile.target_health.version IS 'Newest version at the last pass.';

-- The other columns of a view say what the columns say that they come from.
DO $$
DECLARE
    c record;
BEGIN
    FOR c IN
        SELECT v.relname AS view_name, a.attname AS column_name, d.description
        FROM (VALUES ('open_findings', 'findings', 1), ('finding_history', 'pass_findings', 1), ('finding_history', 'findings', 2), ('repair_history', 'repairs', 1),
            ('active_cooldowns', 'cooldowns', 1), ('active_cooldowns', 'targets', 2), ('target_health', 'targets', 1), ('target_health', 'pass_targets', 2),
            ('pass_summary', 'passes', 1)) AS source (view_name, table_name, rank)
        JOIN pg_class v ON v.relname = source.view_name AND v.relnamespace = 'reconcile'::regnamespace
        JOIN pg_class t ON t.relname = source.table_name AND t.relnamespace = 'reconcile'::regnamespace
        JOIN pg_attribute a ON a.attrelid = v.oid AND a.attnum > 0
        JOIN pg_attribute b ON b.attrelid = t.oid AND b.attname = a.attname AND b.attnum > 0
        JOIN pg_description d ON d.objoid = t.oid AND d.objsubid = b.attnum AND d.classoid = 'pg_class'::regclass
        WHERE col_description(v.oid, a.attnum) IS NULL
        ORDER BY source.rank DESC
    LOOP
        -- The first source is written last and stands.
        EXECUTE format('COMMENT ON COLUMN reconcile.%I.%I IS %L', c.view_name, c.column_name, c.description);
    END LOOP;
END
$$;
