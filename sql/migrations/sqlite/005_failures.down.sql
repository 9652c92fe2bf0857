DROP VIEW failure_history;
CREATE TABLE task_failures_old (
    failure_id        INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    kind              TEXT NOT NULL CHECK (kind <> '' AND length(kind) <= 200),
    target            TEXT NOT NULL CHECK (target <> '' AND length(target) <= 4096),
    error             TEXT NOT NULL CHECK (error <> ''),
    seen_count        INTEGER NOT NULL DEFAULT 1 CHECK (seen_count > 0),
    first_seen_at     TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    last_seen_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')),
    handled_at        TEXT,
    handled_repair_id TEXT,
    handled_note      TEXT,
    CONSTRAINT task_failures_times_are_in_order CHECK (first_seen_at <= last_seen_at),
    CONSTRAINT task_failures_handling_is_whole CHECK (handled_at IS NOT NULL OR handled_repair_id IS NULL AND handled_note IS NULL)
) STRICT;
-- A row without a target has no place in the older table.
INSERT INTO task_failures_old SELECT failure_id, kind, target, error, seen_count, first_seen_at, last_seen_at, handled_at, handled_repair_id, handled_note FROM task_failures WHERE target <> '';
DROP TABLE task_failures;
ALTER TABLE task_failures_old RENAME TO task_failures;
CREATE UNIQUE INDEX task_failures_open ON task_failures (kind, target, error) WHERE handled_at IS NULL;

CREATE TRIGGER take_in_failure BEFORE INSERT ON task_failures
WHEN EXISTS (SELECT 1 FROM task_failures WHERE kind = NEW.kind AND target = NEW.target AND error = substr(NEW.error, 1, 65536) AND handled_at IS NULL)
BEGIN
    -- A clock that was set back must not make the failure be refused.
    UPDATE task_failures SET seen_count = seen_count + 1, last_seen_at = max(last_seen_at, (SELECT now FROM clock))
        WHERE kind = NEW.kind AND target = NEW.target AND error = substr(NEW.error, 1, 65536) AND handled_at IS NULL;
    SELECT RAISE(IGNORE);
END;

-- A default may not ask the clock, and a row that is being inserted may not be changed
-- before it is there.
CREATE TRIGGER date_failure AFTER INSERT ON task_failures
BEGIN
    UPDATE task_failures SET error = substr(error, 1, 65536), first_seen_at = (SELECT now FROM clock), last_seen_at = (SELECT now FROM clock)
        WHERE failure_id = NEW.failure_id;
END;
