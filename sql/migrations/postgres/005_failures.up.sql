-- What becomes of failures that were handed in.

-- Other systems do not always say what their task worked on; the text then does.
ALTER TABLE reconcile.task_failures DROP CONSTRAINT task_failures_target_check;
ALTER TABLE reconcile.task_failures ADD CONSTRAINT task_failures_target_fits CHECK (length(target) <= 4096);
ALTER TABLE reconcile.task_failures ALTER COLUMN target SET DEFAULT '';

-- Without a reference to passes: passes are forgotten, what was handled is not undone by that.
ALTER TABLE reconcile.task_failures ADD COLUMN handled_pass_id text;
ALTER TABLE reconcile.task_failures DROP CONSTRAINT task_failures_handling_is_whole;
ALTER TABLE reconcile.task_failures ADD CONSTRAINT task_failures_handling_is_whole
    CHECK (handled_at IS NOT NULL OR handled_repair_id IS NULL AND handled_note IS NULL AND handled_pass_id IS NULL);

COMMENT ON COLUMN reconcile.task_failures.target IS 'What it worked on, as its system names it; empty when only the text tells.';
COMMENT ON COLUMN reconcile.task_failures.handled_pass_id IS 'Pass that closed it; NULL while it is open.';

CREATE VIEW reconcile.failure_history AS
SELECT f.failure_id, f.kind, f.target, f.error, CASE WHEN f.handled_at IS NULL THEN 'open' ELSE 'handled' END AS state, f.seen_count,
    f.first_seen_at, f.last_seen_at, f.handled_at, f.handled_pass_id, f.handled_repair_id, f.handled_note
FROM reconcile.task_failures f;

COMMENT ON VIEW reconcile.failure_history IS 'Failures that other systems handed in, and what became of them.';
COMMENT ON COLUMN reconcile.failure_history.state IS 'open, or handled when a pass had dealt with it.';

-- The other columns of the view say what the columns say that they come from.
DO $$
DECLARE
    c record;
BEGIN
    FOR c IN
        SELECT a.attname AS column_name, col_description('reconcile.task_failures'::regclass, b.attnum) AS description
        FROM pg_attribute a
        JOIN pg_attribute b ON b.attrelid = 'reconcile.task_failures'::regclass AND b.attname = a.attname AND b.attnum > 0
        WHERE a.attrelid = 'reconcile.failure_history'::regclass AND a.attnum > 0
    LOOP
        EXECUTE format('COMMENT ON COLUMN reconcile.failure_history.%I IS %L', c.column_name, c.description);
    END LOOP;
END
$$;
