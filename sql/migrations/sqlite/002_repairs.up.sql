-- Everything that stands between a decision and a write to a store. Explained column by
-- column in ../postgres.

-- Locks exclude the users of this ledger only; that a table stays whole rests on
-- conditional writes. The row outlives its holder, so that epochs only rise: a
-- holder that was paused past its lease finds another epoch and stops.
CREATE TABLE locks (
    target_uri  TEXT NOT NULL PRIMARY KEY CHECK (target_uri <> ''),
    epoch       INTEGER NOT NULL CHECK (epoch > 0),
    owner       TEXT NOT NULL,
    acquired_at TEXT NOT NULL,
    renewed_at  TEXT NOT NULL,
    lease_until TEXT NOT NULL,
    released_at TEXT
) STRICT;

CREATE TABLE repairs (
    repair_id         TEXT NOT NULL PRIMARY KEY CHECK (repair_id <> ''),
    pass_id           TEXT NOT NULL,
    target_uri        TEXT NOT NULL REFERENCES targets,
    target            TEXT NOT NULL,
    store             TEXT NOT NULL,
    action            TEXT NOT NULL CHECK (action IN ('restore', 'refetch', 'drop_fragment', 'drop_index')),
    state             TEXT NOT NULL CHECK (state IN ('planned', 'intended', 'applied', 'conflict', 'refused', 'failed', 'uncertain')),
    trigger           TEXT NOT NULL CHECK (trigger IN ('schedule', 'manual', 'failure')),
    trigger_error     TEXT,
    actor             TEXT NOT NULL,
    host              TEXT NOT NULL,
    reason            TEXT,
    epoch             INTEGER,
    read_version      INTEGER,
    committed_version INTEGER,
    transaction_uuid  TEXT,
    index_uuid        TEXT,
    index_message     BLOB,
    files             TEXT NOT NULL CHECK (json_type(files) = 'array'),
    fragments         INTEGER NOT NULL CHECK (fragments >= 0),
    rows_dropped      INTEGER CHECK (rows_dropped IS NULL OR rows_dropped >= 0 AND state = 'applied'),
    bytes_restored    INTEGER CHECK (bytes_restored >= 0),
    source            TEXT,
    error             TEXT,
    manifest_name     TEXT,
    manifest_size     INTEGER CHECK (manifest_size > 0),
    manifest_sha256   TEXT CHECK (length(manifest_sha256) = 64),
    manifest_bytes    BLOB,
    created_at        TEXT NOT NULL,
    intended_at       TEXT,
    settled_at        TEXT,
    settled_epoch     INTEGER,
    verified_at       TEXT,
    CONSTRAINT repairs_trigger_is_told CHECK (trigger <> 'failure' OR trigger_error IS NOT NULL),
    -- Whatever was done was intended first, by the holder of a lock.
    CONSTRAINT repairs_effect_was_intended CHECK (state NOT IN ('intended', 'applied', 'conflict', 'uncertain')
        OR intended_at IS NOT NULL AND epoch IS NOT NULL),
    -- A commit to a table is found again by its transaction, and undone from the
    -- manifest before it: without those it must not begin.
    CONSTRAINT repairs_commit_is_complete CHECK (action NOT IN ('drop_fragment', 'drop_index') OR intended_at IS NULL
        OR transaction_uuid IS NOT NULL AND read_version IS NOT NULL AND manifest_name IS NOT NULL
        AND manifest_size IS NOT NULL AND manifest_sha256 IS NOT NULL
        AND (manifest_size > 16777216 OR manifest_bytes IS NOT NULL)),
    CONSTRAINT repairs_fragments_are_told CHECK (action <> 'drop_fragment' OR intended_at IS NULL OR fragments > 0),
    CONSTRAINT repairs_index_is_told CHECK (action <> 'drop_index' OR intended_at IS NULL OR index_uuid IS NOT NULL AND index_message IS NOT NULL),
    CONSTRAINT repairs_manifest_is_whole CHECK (manifest_bytes IS NULL OR length(manifest_bytes) = manifest_size AND manifest_size <= 16777216),
    CONSTRAINT repairs_commit_names_its_version CHECK (action NOT IN ('drop_fragment', 'drop_index') OR (state = 'applied') = (committed_version IS NOT NULL)),
    CONSTRAINT repairs_failure_is_told CHECK (state NOT IN ('conflict', 'refused', 'failed', 'uncertain') OR error IS NOT NULL),
    CONSTRAINT repairs_end_is_whole CHECK ((settled_at IS NOT NULL) = (state IN ('applied', 'conflict', 'refused', 'failed'))),
    CONSTRAINT repairs_only_what_applied_is_verified CHECK (verified_at IS NULL OR state = 'applied')
) STRICT;
CREATE INDEX repairs_of_a_target ON repairs (target_uri, created_at);
CREATE INDEX repairs_of_a_pass ON repairs (pass_id);
CREATE INDEX repairs_created_at ON repairs (created_at);
CREATE INDEX repairs_unsettled ON repairs (target_uri) WHERE state IN ('intended', 'uncertain');
-- At most one commit to a table is under way, whatever any program believes.
CREATE UNIQUE INDEX repairs_one_commit_at_a_time ON repairs (target_uri)
    WHERE state IN ('intended', 'uncertain') AND action IN ('drop_fragment', 'drop_index');

CREATE TABLE repair_fragments (
    repair_id     TEXT NOT NULL REFERENCES repairs ON DELETE CASCADE,
    fragment_id   INTEGER NOT NULL CHECK (fragment_id >= 0),
    message       BLOB,
    physical_rows INTEGER,
    live_rows     INTEGER,
    missing_files TEXT NOT NULL CHECK (json_type(missing_files) = 'array'),
    PRIMARY KEY (repair_id, fragment_id)
) STRICT;

-- A repair moves forward only, and what was written before the effect stays as it
-- was written.
CREATE TRIGGER guard_repair BEFORE UPDATE ON repairs
WHEN NEW.state <> OLD.state AND NOT (
    OLD.state = 'planned' AND NEW.state IN ('intended', 'refused', 'failed')
    OR OLD.state = 'intended' AND NEW.state IN ('applied', 'conflict', 'refused', 'failed', 'uncertain')
    OR OLD.state = 'uncertain' AND NEW.state IN ('applied', 'conflict', 'failed'))
BEGIN
    SELECT RAISE(ABORT, 'CHECK constraint failed: a repair cannot go from its state to this one');
END;
CREATE TRIGGER guard_repair_intent BEFORE UPDATE ON repairs
WHEN OLD.intended_at IS NOT NULL AND (OLD.intended_at IS NOT NEW.intended_at OR OLD.target_uri IS NOT NEW.target_uri OR OLD.action IS NOT NEW.action
    OR OLD.epoch IS NOT NEW.epoch OR OLD.read_version IS NOT NEW.read_version OR OLD.transaction_uuid IS NOT NEW.transaction_uuid
    OR OLD.index_uuid IS NOT NEW.index_uuid OR OLD.index_message IS NOT NEW.index_message OR OLD.fragments IS NOT NEW.fragments
    OR OLD.manifest_name IS NOT NEW.manifest_name OR OLD.manifest_size IS NOT NEW.manifest_size
    OR OLD.manifest_sha256 IS NOT NEW.manifest_sha256 OR OLD.manifest_bytes IS NOT NEW.manifest_bytes)
BEGIN
    SELECT RAISE(ABORT, 'CHECK constraint failed: a repair was intended otherwise');
END;

CREATE TABLE cooldowns (
    kind                 TEXT NOT NULL CHECK (kind IN ('check', 'repair', 'merge_wal')),
    target_uri           TEXT NOT NULL CHECK (target_uri <> ''),
    consecutive_failures INTEGER NOT NULL CHECK (consecutive_failures >= 0),
    cooldown_until       TEXT,
    last_error           TEXT,
    last_error_class     TEXT,
    last_failed_at       TEXT,
    last_succeeded_at    TEXT,
    PRIMARY KEY (kind, target_uri),
    CONSTRAINT cooldowns_success_ends_it CHECK (consecutive_failures > 0 OR cooldown_until IS NULL)
) STRICT;
CREATE INDEX cooldowns_until ON cooldowns (kind, cooldown_until) WHERE cooldown_until IS NOT NULL;

CREATE TABLE refetch_attempts (
    finding_id      TEXT NOT NULL PRIMARY KEY CHECK (length(finding_id) = 32),
    target_uri      TEXT NOT NULL,
    attempts        INTEGER NOT NULL CHECK (attempts > 0),
    next_attempt_at TEXT NOT NULL,
    peers_said_no   TEXT NOT NULL CHECK (json_type(peers_said_no) = 'array'),
    last_error      TEXT,
    last_failed_at  TEXT NOT NULL
) STRICT;

CREATE TABLE store_probes (
    root_uri     TEXT NOT NULL,
    probe        TEXT NOT NULL,
    passed       INTEGER NOT NULL CHECK (passed IN (0, 1)),
    detail       TEXT,
    host         TEXT NOT NULL,
    tool_version TEXT NOT NULL,
    probed_at    TEXT NOT NULL,
    PRIMARY KEY (root_uri, probe)
) STRICT;
