-- What other systems are told of repairs. Explained in ../postgres.

CREATE TABLE repair_posts (
    repair_id       TEXT NOT NULL REFERENCES repairs ON DELETE CASCADE,
    hook            TEXT NOT NULL CHECK (length(hook) = 32),
    url             TEXT NOT NULL,
    state           TEXT NOT NULL CHECK (state IN ('open', 'delivered', 'refused', 'given_up')),
    passes          INTEGER NOT NULL CHECK (passes >= 0),
    attempts        INTEGER NOT NULL CHECK (attempts >= 0),
    status          INTEGER CHECK (status BETWEEN 100 AND 999),
    error           TEXT,
    created_at      TEXT NOT NULL,
    claimed_until   TEXT,
    last_attempt_at TEXT,
    ended_at        TEXT,
    PRIMARY KEY (repair_id, hook),
    CONSTRAINT repair_posts_end_is_whole CHECK ((ended_at IS NOT NULL) = (state <> 'open')),
    CONSTRAINT repair_posts_failure_is_told CHECK (state NOT IN ('refused', 'given_up') OR error IS NOT NULL),
    CONSTRAINT repair_posts_delivered_was_sent CHECK (state <> 'delivered' OR attempts > 0 AND status IS NOT NULL)
) STRICT;
CREATE INDEX repair_posts_open ON repair_posts (created_at) WHERE state = 'open';

CREATE VIEW post_history AS
SELECT p.repair_id, r.pass_id, r.target, r.store, r.target_uri, r.action, p.hook, p.url, p.state, p.passes, p.attempts, p.status, p.error,
    p.created_at, p.last_attempt_at, p.ended_at
FROM repair_posts p
JOIN repairs r ON r.repair_id = p.repair_id;
