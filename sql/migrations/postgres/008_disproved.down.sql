ALTER TABLE reconcile.refetch_attempts DROP COLUMN disproved;
