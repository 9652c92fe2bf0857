-- What other systems are told of repairs (after_repair in the configuration). A row
-- is written before anything is sent, so that a post that a dying process owes is
-- found by the next pass.

CREATE TABLE reconcile.repair_posts (
    repair_id       text        NOT NULL REFERENCES reconcile.repairs ON DELETE CASCADE,
    hook            text        NOT NULL CHECK (length(hook) = 32),
    url             text        NOT NULL,
    state           text        NOT NULL CHECK (state IN ('open', 'delivered', 'refused', 'given_up')),
    passes          bigint      NOT NULL CHECK (passes >= 0),
    attempts        bigint      NOT NULL CHECK (attempts >= 0),
    status          bigint CHECK (status BETWEEN 100 AND 999),
    error           text,
    created_at      timestamptz NOT NULL,
    claimed_until   timestamptz,
    last_attempt_at timestamptz,
    ended_at        timestamptz,
    PRIMARY KEY (repair_id, hook),
    CONSTRAINT repair_posts_end_is_whole CHECK ((ended_at IS NOT NULL) = (state <> 'open')),
    CONSTRAINT repair_posts_failure_is_told CHECK (state NOT IN ('refused', 'given_up') OR error IS NOT NULL),
    CONSTRAINT repair_posts_delivered_was_sent CHECK (state <> 'delivered' OR attempts > 0 AND status IS NOT NULL)
);
CREATE INDEX repair_posts_open ON reconcile.repair_posts (created_at) WHERE state = 'open';

CREATE VIEW reconcile.post_history AS
SELECT p.repair_id, r.pass_id, r.target, r.store, r.target_uri, r.action, p.hook, p.url, p.state, p.passes, p.attempts, p.status, p.error,
    p.created_at, p.last_attempt_at, p.ended_at
FROM reconcile.repair_posts p
JOIN reconcile.repairs r ON r.repair_id = p.repair_id;

COMMENT ON TABLE reconcile.repair_posts IS 'What other systems are told of repairs: one row per repair and hook, written before anything is sent.';
COMMENT ON COLUMN reconcile.repair_posts.repair_id IS 'The repair that is told of.';
COMMENT ON COLUMN reconcile.repair_posts.hook IS 'Which hook of the configuration: 32 hex digits over its address, without the query, and its body.';
COMMENT ON COLUMN reconcile.repair_posts.url IS 'Where it goes, without user and query, which may hold secrets.';
COMMENT ON COLUMN reconcile.repair_posts.state IS 'open (to be sent, by the next pass if need be), delivered, refused (an answer that no repetition changes) or given_up.';
COMMENT ON COLUMN reconcile.repair_posts.passes IS 'Passes that tried.';
COMMENT ON COLUMN reconcile.repair_posts.attempts IS 'Requests that were sent or could not be.';
COMMENT ON COLUMN reconcile.repair_posts.status IS 'HTTP status of the last answer; NULL when there was none.';
COMMENT ON COLUMN reconcile.repair_posts.error IS 'Why the last attempt did not end well; NULL when it did or there was none.';
COMMENT ON COLUMN reconcile.repair_posts.created_at IS 'When it was found to be due.';
COMMENT ON COLUMN reconcile.repair_posts.claimed_until IS 'Until when a pass that sends it keeps others from sending it too; NULL when none does.';
COMMENT ON COLUMN reconcile.repair_posts.last_attempt_at IS 'When it was last tried; NULL when it never was.';
COMMENT ON COLUMN reconcile.repair_posts.ended_at IS 'When nothing more was to be done; NULL while it is open.';

COMMENT ON VIEW reconcile.post_history IS 'What other systems were told of repairs, and what they answered.';

-- The columns of the view say what the columns say that they come from.
DO $$
DECLARE
    c record;
BEGIN
    FOR c IN
        SELECT a.attname AS column_name, d.description
        FROM (VALUES ('repair_posts', 1), ('repairs', 2)) AS source (table_name, rank)
        JOIN pg_class t ON t.relname = source.table_name AND t.relnamespace = 'reconcile'::regnamespace
        JOIN pg_attribute b ON b.attrelid = t.oid AND b.attnum > 0
        JOIN pg_attribute a ON a.attrelid = 'reconcile.post_history'::regclass AND a.attname = b.attname AND a.attnum > 0
        JOIN pg_description d ON d.objoid = t.oid AND d.objsubid = b.attnum AND d.classoid = 'pg_class'::regclass
        ORDER BY source.rank DESC
    LOOP
        -- The first source is written last and stands.
        EXECUTE format('COMMENT ON COLUMN reconcile.post_history.%I IS %L', c.column_name, c.description);
    END LOOP;
END
$$;
