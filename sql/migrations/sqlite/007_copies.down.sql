-- A column goes only while every view can be read, so that those that read it go first.
DROP VIEW target_health;
DROP VIEW repair_history;
DROP VIEW finding_history;
DROP VIEW open_findings;
DROP TABLE look_checkpoints;
ALTER TABLE findings DROP COLUMN record;
ALTER TABLE repairs DROP COLUMN duration_ms;
ALTER TABLE repairs DROP COLUMN proof;

CREATE VIEW open_findings AS
SELECT f.finding_id, f.target, f.store, f.target_uri, f.role, f.path, f.url, f.version, f.scopes, f.fragment_id, f.verdict, f.reason,
    f.verdict IN ('missing', 'recoverable', 'lost', 'size_mismatch', 'checksum_mismatch', 'unreadable', 'archived') AND NOT f.harmless AS damaged,
    f.harmless, f.expected_size, f.observed_size, f.expected_checksum, f.observed_checksum, f.physical_rows, f.rows_at_risk,
    f.columns_lost, f.columns_kept, f.http_status, f.error_code, f.request_id, f.first_observed_at, f.confirmed_at, f.recoverable_until,
    f.peers_asked, f.peers_having, f.proposed_action, f.blocked_by, f.depth, f.versions, f.first_seen_at, f.last_seen_at, f.damaged_since,
    f.seen_count, f.first_pass_id, f.last_pass_id,
    f.acknowledged_until IS NOT NULL AND f.acknowledged_until > (SELECT now FROM clock) AS acknowledged,
    f.acknowledged_until, f.ack_reason, f.ack_actor
FROM findings f
WHERE f.resolved_at IS NULL;

CREATE VIEW finding_history AS
SELECT e.pass_id, e.recorded_at, e.event, e.verdict, e.rows_at_risk, f.finding_id, f.target, f.store, f.target_uri, f.role, f.path, f.url, f.fragment_id,
    f.first_seen_at, f.resolved_at, f.resolution
FROM pass_findings e
JOIN findings f ON f.finding_id = e.finding_id;

CREATE VIEW repair_history AS
SELECT r.repair_id, r.pass_id, r.target, r.store, r.target_uri, r.action, r.state, r.trigger, r.trigger_error, r.reason, r.actor, r.host,
    r.read_version, r.committed_version, r.transaction_uuid, r.index_uuid, r.files, r.fragments, r.rows_dropped, r.bytes_restored,
    r.source, r.error, r.manifest_name, r.manifest_size, r.manifest_sha256, r.manifest_bytes IS NOT NULL AS manifest_kept,
    r.created_at, r.intended_at, r.settled_at, r.verified_at
FROM repairs r;

CREATE VIEW target_health AS
SELECT t.target, t.store, t.kind, t.target_uri, p.state, p.reason, p.version, t.highest_version, p.live_rows, p.fragments, p.pending_generations,
    p.registry, t.first_seen_at, t.last_seen_at, t.last_checked_at, t.last_pass_id,
    coalesce(f.open_findings, 0) AS open_findings, coalesce(f.damaged_objects, 0) AS damaged_objects, coalesce(f.acknowledged, 0) AS acknowledged,
    k.rows_at_risk, f.damaged_since,
    cc.cooldown_until AS check_cooldown_until, cr.cooldown_until AS repair_cooldown_until,
    coalesce(r.unsettled, 0) AS unsettled_repairs, r.last_applied_at AS last_repaired_at, coalesce(r.rows_dropped, 0) AS rows_dropped
FROM targets t
LEFT JOIN pass_targets p ON p.pass_id = t.last_pass_id AND p.target_uri = t.target_uri
LEFT JOIN (
    SELECT target_uri, count(*) AS open_findings, count(*) FILTER (WHERE damaged) AS damaged_objects,
        count(*) FILTER (WHERE acknowledged) AS acknowledged, min(damaged_since) AS damaged_since
    FROM open_findings GROUP BY target_uri
) f ON f.target_uri = t.target_uri
LEFT JOIN (
    -- Several objects of one fragment put the same rows at risk: a fragment counts once.
    SELECT target_uri, sum(fragment_rows) AS rows_at_risk FROM (
        SELECT target_uri, max(rows_at_risk) AS fragment_rows FROM open_findings
        WHERE damaged GROUP BY target_uri, coalesce(CAST(fragment_id AS text), finding_id)
    ) g GROUP BY target_uri
) k ON k.target_uri = t.target_uri
LEFT JOIN active_cooldowns cc ON cc.kind = 'check' AND cc.target_uri = t.target_uri
LEFT JOIN active_cooldowns cr ON cr.kind = 'repair' AND cr.target_uri = t.target_uri
LEFT JOIN (
    SELECT target_uri, count(*) FILTER (WHERE state IN ('intended', 'uncertain')) AS unsettled,
        max(settled_at) FILTER (WHERE state = 'applied') AS last_applied_at, sum(rows_dropped) AS rows_dropped
    FROM repairs GROUP BY target_uri
) r ON r.target_uri = t.target_uri;
