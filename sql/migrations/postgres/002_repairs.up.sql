-- Everything that stands between a decision and a write to a store.

-- Locks exclude the users of this ledger only; that a table stays whole rests on
-- conditional writes. The row outlives its holder, so that epochs only rise: a
-- holder that was paused past its lease finds another epoch and stops.
CREATE TABLE reconcile.locks (
    target_uri  text        NOT NULL PRIMARY KEY CHECK (target_uri <> ''),
    epoch       bigint      NOT NULL CHECK (epoch > 0),
    owner       text        NOT NULL,
    acquired_at timestamptz NOT NULL,
    renewed_at  timestamptz NOT NULL,
    lease_until timestamptz NOT NULL,
    released_at timestamptz
);

CREATE TABLE reconcile.repairs (
    repair_id         text        NOT NULL PRIMARY KEY CHECK (repair_id <> ''),
    pass_id           text        NOT NULL,
    target_uri        text        NOT NULL REFERENCES reconcile.targets,
    target            text        NOT NULL,
    store             text        NOT NULL,
    action            text        NOT NULL CHECK (action IN ('restore', 'refetch', 'drop_fragment', 'drop_index')),
    state             text        NOT NULL CHECK (state IN ('planned', 'intended', 'applied', 'conflict', 'refused', 'failed', 'uncertain')),
    trigger           text        NOT NULL CHECK (trigger IN ('schedule', 'manual', 'failure')),
    trigger_error     text,
    actor             text        NOT NULL,
    host              text        NOT NULL,
    reason            text,
    epoch             bigint,
    read_version      bigint,
    committed_version bigint,
    transaction_uuid  text,
    index_uuid        text,
    index_message     bytea,
    files             text[]      NOT NULL,
    fragments         bigint      NOT NULL CHECK (fragments >= 0),
    rows_dropped      bigint CHECK (rows_dropped IS NULL OR rows_dropped >= 0 AND state = 'applied'),
    bytes_restored    bigint CHECK (bytes_restored >= 0),
    source            text,
    error             text,
    manifest_name     text,
    manifest_size     bigint CHECK (manifest_size > 0),
    manifest_sha256   text CHECK (length(manifest_sha256) = 64),
    manifest_bytes    bytea,
    created_at        timestamptz NOT NULL,
    intended_at       timestamptz,
    settled_at        timestamptz,
    settled_epoch     bigint,
    verified_at       timestamptz,
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
);
CREATE INDEX repairs_of_a_target ON reconcile.repairs (target_uri, created_at);
CREATE INDEX repairs_of_a_pass ON reconcile.repairs (pass_id);
CREATE INDEX repairs_created_at ON reconcile.repairs (created_at);
CREATE INDEX repairs_unsettled ON reconcile.repairs (target_uri) WHERE state IN ('intended', 'uncertain');
-- At most one commit to a table is under way, whatever any program believes.
CREATE UNIQUE INDEX repairs_one_commit_at_a_time ON reconcile.repairs (target_uri)
    WHERE state IN ('intended', 'uncertain') AND action IN ('drop_fragment', 'drop_index');

CREATE TABLE reconcile.repair_fragments (
    repair_id     text   NOT NULL REFERENCES reconcile.repairs ON DELETE CASCADE,
    fragment_id   bigint NOT NULL CHECK (fragment_id >= 0),
    message       bytea,
    physical_rows bigint,
    live_rows     bigint,
    missing_files text[] NOT NULL,
    PRIMARY KEY (repair_id, fragment_id)
);

-- A repair moves forward only, and what was written before the effect stays as it
-- was written.
CREATE FUNCTION reconcile.guard_repair() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state <> OLD.state AND NOT (
        OLD.state = 'planned' AND NEW.state IN ('intended', 'refused', 'failed')
        OR OLD.state = 'intended' AND NEW.state IN ('applied', 'conflict', 'refused', 'failed', 'uncertain')
        OR OLD.state = 'uncertain' AND NEW.state IN ('applied', 'conflict', 'failed')
    ) THEN
        RAISE EXCEPTION 'repair % cannot go from % to %', OLD.repair_id, OLD.state, NEW.state USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.intended_at IS NOT NULL AND (OLD.intended_at, OLD.target_uri, OLD.action, OLD.epoch, OLD.read_version, OLD.transaction_uuid,
            OLD.index_uuid, OLD.index_message, OLD.fragments, OLD.manifest_name, OLD.manifest_size, OLD.manifest_sha256, OLD.manifest_bytes)
        IS DISTINCT FROM (NEW.intended_at, NEW.target_uri, NEW.action, NEW.epoch, NEW.read_version, NEW.transaction_uuid,
            NEW.index_uuid, NEW.index_message, NEW.fragments, NEW.manifest_name, NEW.manifest_size, NEW.manifest_sha256, NEW.manifest_bytes)
    THEN
        RAISE EXCEPTION 'repair % was intended otherwise', OLD.repair_id USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER guard_repair BEFORE UPDATE ON reconcile.repairs FOR EACH ROW EXECUTE FUNCTION reconcile.guard_repair();

CREATE TABLE reconcile.cooldowns (
    kind                 text        NOT NULL CHECK (kind IN ('check', 'repair', 'merge_wal')),
    target_uri           text        NOT NULL CHECK (target_uri <> ''),
    consecutive_failures bigint      NOT NULL CHECK (consecutive_failures >= 0),
    cooldown_until       timestamptz,
    last_error           text,
    last_error_class     text,
    last_failed_at       timestamptz,
    last_succeeded_at    timestamptz,
    PRIMARY KEY (kind, target_uri),
    CONSTRAINT cooldowns_success_ends_it CHECK (consecutive_failures > 0 OR cooldown_until IS NULL)
);
CREATE INDEX cooldowns_until ON reconcile.cooldowns (kind, cooldown_until) WHERE cooldown_until IS NOT NULL;

CREATE TABLE reconcile.refetch_attempts (
    finding_id      text        NOT NULL PRIMARY KEY CHECK (length(finding_id) = 32),
    target_uri      text        NOT NULL,
    attempts        bigint      NOT NULL CHECK (attempts > 0),
    next_attempt_at timestamptz NOT NULL,
    peers_said_no   text[]      NOT NULL,
    last_error      text,
    last_failed_at  timestamptz NOT NULL
);

CREATE TABLE reconcile.store_probes (
    root_uri     text        NOT NULL,
    probe        text        NOT NULL,
    passed       boolean     NOT NULL,
    detail       text,
    host         text        NOT NULL,
    tool_version text        NOT NULL,
    probed_at    timestamptz NOT NULL,
    PRIMARY KEY (root_uri, probe)
);

COMMENT ON FUNCTION reconcile.guard_repair() IS 'Keeps a repair moving forward only, and what was intended as it was written.';

COMMENT ON TABLE reconcile.locks IS 'Who works on a target. Rows stay, so that epochs only rise.';
COMMENT ON COLUMN reconcile.locks.target_uri IS 'Canonical URI of the dataset: the key of everything that is remembered about the target.';
COMMENT ON COLUMN reconcile.locks.epoch IS 'Rises with every holder; every write of a holder says its own.';
COMMENT ON COLUMN reconcile.locks.owner IS 'Who holds or held it.';
COMMENT ON COLUMN reconcile.locks.acquired_at IS 'When it was taken.';
COMMENT ON COLUMN reconcile.locks.renewed_at IS 'When the lease was last renewed.';
COMMENT ON COLUMN reconcile.locks.lease_until IS 'Until when the holder may be trusted to live; anybody may take the lock after.';
COMMENT ON COLUMN reconcile.locks.released_at IS 'When it was given back; NULL when it is held or its holder died.';

COMMENT ON TABLE reconcile.repairs IS 'One row per repair, written before it and completed after it. Never pruned before it is settled.';
COMMENT ON COLUMN reconcile.repairs.repair_id IS 'Identity of the repair; also stands in the transaction that it commits.';
COMMENT ON COLUMN reconcile.repairs.pass_id IS 'Pass that did it; the row outlives the pass.';
COMMENT ON COLUMN reconcile.repairs.target_uri IS 'Canonical URI of the dataset: the key of everything that is remembered about the target.';
COMMENT ON COLUMN reconcile.repairs.target IS 'Name of the target as users type it.';
COMMENT ON COLUMN reconcile.repairs.store IS 'Configured name of the store, else its root URI.';
COMMENT ON COLUMN reconcile.repairs.action IS 'restore, refetch, drop_fragment or drop_index.';
COMMENT ON COLUMN reconcile.repairs.state IS 'planned, intended (written before the effect), applied, conflict, refused, failed or uncertain (the effect is unknown).';
COMMENT ON COLUMN reconcile.repairs.trigger IS 'schedule, manual or failure.';
COMMENT ON COLUMN reconcile.repairs.trigger_error IS 'The failure that asked for it; NULL for other triggers.';
COMMENT ON COLUMN reconcile.repairs.actor IS 'Who ran it.';
COMMENT ON COLUMN reconcile.repairs.host IS 'Where it ran.';
COMMENT ON COLUMN reconcile.repairs.reason IS 'What the user gave as --reason; NULL when nothing.';
COMMENT ON COLUMN reconcile.repairs.epoch IS 'Epoch of the lock under which it was intended.';
COMMENT ON COLUMN reconcile.repairs.read_version IS 'Version that the repair was made from; NULL when none was read.';
COMMENT ON COLUMN reconcile.repairs.committed_version IS 'Version that the repair made; NULL when it made none.';
COMMENT ON COLUMN reconcile.repairs.transaction_uuid IS 'Transaction of the commit, by which it is found again; NULL when there is none.';
COMMENT ON COLUMN reconcile.repairs.index_uuid IS 'Index entry that is dropped; NULL when none is.';
COMMENT ON COLUMN reconcile.repairs.index_message IS 'That entry as it stood in the manifest (protobuf IndexMetadata), for undo.';
COMMENT ON COLUMN reconcile.repairs.files IS 'Objects that are brought back or whose loss is answered, as the metadata names them.';
COMMENT ON COLUMN reconcile.repairs.fragments IS 'Number of its rows in repair_fragments.';
COMMENT ON COLUMN reconcile.repairs.rows_dropped IS 'Live rows that the table lost; NULL unless applied, and when unknown.';
COMMENT ON COLUMN reconcile.repairs.bytes_restored IS 'Bytes brought back; NULL when unknown.';
COMMENT ON COLUMN reconcile.repairs.source IS 'Version or peer that the bytes came from; NULL when none.';
COMMENT ON COLUMN reconcile.repairs.error IS 'Why it did not end well; NULL when it did.';
COMMENT ON COLUMN reconcile.repairs.manifest_name IS 'Manifest that the repair was made from, as it is named below the dataset.';
COMMENT ON COLUMN reconcile.repairs.manifest_size IS 'Its size in bytes.';
COMMENT ON COLUMN reconcile.repairs.manifest_sha256 IS 'SHA-256 (hex) of its bytes.';
COMMENT ON COLUMN reconcile.repairs.manifest_bytes IS 'Its bytes, up to 16 MiB, for undo; NULL when it is larger.';
COMMENT ON COLUMN reconcile.repairs.created_at IS 'When the row was written.';
COMMENT ON COLUMN reconcile.repairs.intended_at IS 'When the intention was written; nothing was sent to a store before. NULL when nothing was intended.';
COMMENT ON COLUMN reconcile.repairs.settled_at IS 'When the outcome was written; NULL while it is unknown.';
COMMENT ON COLUMN reconcile.repairs.settled_epoch IS 'Epoch of the lock under which the outcome was written.';
COMMENT ON COLUMN reconcile.repairs.verified_at IS 'When the repaired target was looked at again and was right; NULL when it was not.';

COMMENT ON TABLE reconcile.repair_fragments IS 'The fragments of a repair, complete enough to put them back.';
COMMENT ON COLUMN reconcile.repair_fragments.repair_id IS 'The repair.';
COMMENT ON COLUMN reconcile.repair_fragments.fragment_id IS 'Id of the fragment.';
COMMENT ON COLUMN reconcile.repair_fragments.message IS 'The fragment as it stood in the manifest (protobuf DataFragment), for undo; NULL when it was not dropped.';
COMMENT ON COLUMN reconcile.repair_fragments.physical_rows IS 'Rows of the fragment, deleted ones included; NULL when unknown.';
COMMENT ON COLUMN reconcile.repair_fragments.live_rows IS 'Rows of it that were not deleted; NULL when unknown.';
COMMENT ON COLUMN reconcile.repair_fragments.missing_files IS 'Its damaged objects, as the metadata names them.';

COMMENT ON TABLE reconcile.cooldowns IS 'How often work on a target failed in a row, and until when it is left alone.';
COMMENT ON COLUMN reconcile.cooldowns.kind IS 'Which work: check, repair or merge_wal. Each cools down alone.';
COMMENT ON COLUMN reconcile.cooldowns.target_uri IS 'Canonical URI of the dataset: the key of everything that is remembered about the target.';
COMMENT ON COLUMN reconcile.cooldowns.consecutive_failures IS 'Failures since the last verified success of this kind.';
COMMENT ON COLUMN reconcile.cooldowns.cooldown_until IS 'Until when scheduled passes skip this work; NULL when they do not.';
COMMENT ON COLUMN reconcile.cooldowns.last_error IS 'Text of the last failure; it stays after a success.';
COMMENT ON COLUMN reconcile.cooldowns.last_error_class IS 'Class of the last failure.';
COMMENT ON COLUMN reconcile.cooldowns.last_failed_at IS 'When it last failed.';
COMMENT ON COLUMN reconcile.cooldowns.last_succeeded_at IS 'When it last succeeded and was verified; NULL when it never did.';

COMMENT ON TABLE reconcile.refetch_attempts IS 'Objects that could not be fetched from a peer, and when to try again.';
COMMENT ON COLUMN reconcile.refetch_attempts.finding_id IS 'Finding about the object.';
COMMENT ON COLUMN reconcile.refetch_attempts.target_uri IS 'Canonical URI of the dataset: the key of everything that is remembered about the target.';
COMMENT ON COLUMN reconcile.refetch_attempts.attempts IS 'Failed attempts in a row.';
COMMENT ON COLUMN reconcile.refetch_attempts.next_attempt_at IS 'When the next one is due.';
COMMENT ON COLUMN reconcile.refetch_attempts.peers_said_no IS 'Peers that said explicitly that they do not have it.';
COMMENT ON COLUMN reconcile.refetch_attempts.last_error IS 'Text of the last failure.';
COMMENT ON COLUMN reconcile.refetch_attempts.last_failed_at IS 'When it last failed.';

COMMENT ON TABLE reconcile.store_probes IS 'What self-tests of store roots found, so that not every pass repeats them.';
COMMENT ON COLUMN reconcile.store_probes.root_uri IS 'Canonical URI of the root.';
COMMENT ON COLUMN reconcile.store_probes.probe IS 'Which test (conditional_put).';
COMMENT ON COLUMN reconcile.store_probes.passed IS 'Whether the store behaves as it must.';
COMMENT ON COLUMN reconcile.store_probes.detail IS 'What it did; NULL when there is nothing to say.';
COMMENT ON COLUMN reconcile.store_probes.host IS 'Where the test ran.';
COMMENT ON COLUMN reconcile.store_probes.tool_version IS 'Version of reconcile.';
COMMENT ON COLUMN reconcile.store_probes.probed_at IS 'When.';
