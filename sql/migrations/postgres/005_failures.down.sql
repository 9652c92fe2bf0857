DROP VIEW reconcile.failure_history;
ALTER TABLE reconcile.task_failures DROP CONSTRAINT task_failures_handling_is_whole;
ALTER TABLE reconcile.task_failures DROP COLUMN handled_pass_id;
ALTER TABLE reconcile.task_failures ADD CONSTRAINT task_failures_handling_is_whole CHECK (handled_at IS NOT NULL OR handled_repair_id IS NULL AND handled_note IS NULL);
COMMENT ON COLUMN reconcile.task_failures.target IS 'What it worked on, as its system names it.';
ALTER TABLE reconcile.task_failures ALTER COLUMN target DROP DEFAULT;
ALTER TABLE reconcile.task_failures DROP CONSTRAINT task_failures_target_fits;
-- A row without a target has no place in the older table.
DELETE FROM reconcile.task_failures WHERE target = '';
ALTER TABLE reconcile.task_failures ADD CONSTRAINT task_failures_target_check CHECK (target <> '' AND length(target) <= 4096);
