-- Which copies of peers failed their proof: as long as a peer holds the very same one, it
-- has none, and the last rung of the ladder may follow.

ALTER TABLE reconcile.refetch_attempts ADD COLUMN disproved jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(disproved) = 'object');

COMMENT ON COLUMN reconcile.refetch_attempts.disproved IS 'Copies that failed their proof (JSON object): peer, and the ETag of its copy with what it was held against.';
