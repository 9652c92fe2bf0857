-- Failures of other systems' tasks, handed in by a plain INSERT:
--
--     INSERT INTO reconcile.task_failures (kind, target, error) VALUES (…)
--
-- A text that says what an open one says is counted there and adds no row (the
-- INSERT answers 0 rows). A row that was handled is history; the same text after it
-- opens a new one.

CREATE TABLE reconcile.task_failures (
    failure_id        bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind              text        NOT NULL CHECK (kind <> '' AND length(kind) <= 200),
    target            text        NOT NULL CHECK (target <> '' AND length(target) <= 4096),
    error             text        NOT NULL CHECK (error <> ''),
    seen_count        bigint      NOT NULL DEFAULT 1 CHECK (seen_count > 0),
    first_seen_at     timestamptz NOT NULL DEFAULT reconcile.now(),
    last_seen_at      timestamptz NOT NULL DEFAULT reconcile.now(),
    handled_at        timestamptz,
    handled_repair_id text,
    handled_note      text,
    CONSTRAINT task_failures_times_are_in_order CHECK (first_seen_at <= last_seen_at),
    CONSTRAINT task_failures_handling_is_whole CHECK (handled_at IS NOT NULL OR handled_repair_id IS NULL AND handled_note IS NULL)
);
-- hashtextextended and not md5(): the latter fails on servers in FIPS mode.
CREATE UNIQUE INDEX task_failures_open ON reconcile.task_failures (kind, target, hashtextextended(error, 0)) WHERE handled_at IS NULL;

-- SECURITY DEFINER because whoever hands in a failure may insert and nothing else,
-- while counting is an update. Its search_path is fixed for the same reason.
CREATE FUNCTION reconcile.take_in_failure() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    hash bigint;
BEGIN
    -- A failure that is refused for its length is a failure that is lost.
    NEW.error := left(NEW.error, 65536);
    hash := hashtextextended(NEW.error, 0);
    -- Two that hand in the same text at once must not both find nothing.
    PERFORM pg_advisory_xact_lock(hashtextextended(NEW.kind || chr(1) || NEW.target, hash));
    -- A clock that was set back must not make the failure be refused.
    UPDATE reconcile.task_failures SET seen_count = seen_count + 1, last_seen_at = greatest(last_seen_at, reconcile.now())
        WHERE kind = NEW.kind AND target = NEW.target AND hashtextextended(error, 0) = hash AND handled_at IS NULL;
    IF FOUND THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER take_in_failure BEFORE INSERT ON reconcile.task_failures FOR EACH ROW EXECUTE FUNCTION reconcile.take_in_failure();

COMMENT ON FUNCTION reconcile.take_in_failure() IS 'Counts a failure that is open already instead of adding it.';

COMMENT ON TABLE reconcile.task_failures IS 'Failures of other systems'' tasks: INSERT (kind, target, error). A text that names a missing file puts its target first in the next pass.';
COMMENT ON COLUMN reconcile.task_failures.failure_id IS 'Number of the row.';
COMMENT ON COLUMN reconcile.task_failures.kind IS 'Kind of the task that failed.';
COMMENT ON COLUMN reconcile.task_failures.target IS 'What it worked on, as its system names it.';
COMMENT ON COLUMN reconcile.task_failures.error IS 'The text of the failure; 65,536 characters at most are kept.';
COMMENT ON COLUMN reconcile.task_failures.seen_count IS 'How often the same was handed in while open.';
COMMENT ON COLUMN reconcile.task_failures.first_seen_at IS 'When it was first handed in.';
COMMENT ON COLUMN reconcile.task_failures.last_seen_at IS 'When it was last handed in.';
COMMENT ON COLUMN reconcile.task_failures.handled_at IS 'When a pass had dealt with it; NULL while it is open.';
COMMENT ON COLUMN reconcile.task_failures.handled_repair_id IS 'Repair that answered it; NULL when none was needed.';
COMMENT ON COLUMN reconcile.task_failures.handled_note IS 'What came of it.';
