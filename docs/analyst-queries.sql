-- Questions that people ask the ledger. Each is one statement over the views, which the
-- role reconcile_ro may read:
--
--     psql "$DATABASE_URL" -v since=2026-01-01 -f docs/analyst-queries.sql
--
-- A question begins with a line "-- Q:".

\if :{?since} \else \set since '2000-01-01' \endif

-- Q: What is damaged now, by store and verdict?
SELECT store, verdict, count(*) AS objects, count(DISTINCT target_uri) AS targets,
    count(*) FILTER (WHERE acknowledged) AS acknowledged, min(damaged_since) AS damaged_since, min(recoverable_until) AS recoverable_until
FROM reconcile.open_findings
WHERE damaged
GROUP BY store, verdict
ORDER BY store, objects DESC, verdict;

-- Q: How many rows did each target lose per week?
SELECT date_trunc('week', settled_at AT TIME ZONE 'UTC')::date AS week, store, target, sum(rows_dropped) AS rows_lost,
    count(*) FILTER (WHERE rows_dropped IS NULL) AS repairs_of_unknown_size
FROM reconcile.repair_history
WHERE state = 'applied' AND action = 'drop_fragment'
GROUP BY week, store, target_uri, target
ORDER BY week DESC, rows_lost DESC NULLS LAST, store, target;

-- Q: What was repaired since a date, and why?
SELECT settled_at, store, target, action, trigger, coalesce(trigger_error, reason) AS why, actor, read_version, committed_version,
    fragments, rows_dropped, bytes_restored, verified_at IS NOT NULL AS verified, repair_id
FROM reconcile.repair_history
WHERE state = 'applied' AND settled_at >= :'since'::timestamptz
ORDER BY settled_at DESC, repair_id;

-- Q: Which targets are left alone for now, and what was their last error?
SELECT store, target, kind, consecutive_failures, cooldown_until, last_failed_at, last_error_class, last_error
FROM reconcile.active_cooldowns
ORDER BY cooldown_until, store, target, kind;

-- Q: What is new and what is resolved between the last two passes over everything? Narrowed ones between them are counted in.
WITH last AS (
    SELECT pass_id, started_at, row_number() OVER (ORDER BY started_at DESC, pass_id DESC) AS n
    FROM reconcile.pass_summary
    WHERE finished_at IS NOT NULL AND scope_targets_filter = '{}'
), earlier AS (
    SELECT h.finding_id FROM reconcile.finding_history h JOIN last ON last.pass_id = h.pass_id AND last.n = 2 WHERE h.event = 'seen'
), later AS (
    SELECT DISTINCT ON (h.finding_id) h.*
    FROM reconcile.finding_history h JOIN reconcile.pass_summary p ON p.pass_id = h.pass_id
    JOIN last a ON a.n = 2 AND p.started_at > a.started_at JOIN last b ON b.n = 1 AND p.started_at <= b.started_at
    ORDER BY h.finding_id, h.recorded_at DESC
)
SELECT CASE WHEN later.event <> 'seen' THEN 'resolved' WHEN earlier.finding_id IS NULL THEN 'new' ELSE 'persisting' END AS change,
    later.store, later.target, later.role, later.path, later.verdict, later.rows_at_risk
FROM later
LEFT JOIN earlier ON earlier.finding_id = later.finding_id
WHERE later.event <> 'seen' OR earlier.finding_id IS NULL
ORDER BY change, later.store, later.target, later.role, later.path;
