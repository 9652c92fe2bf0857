ALTER TABLE refetch_attempts DROP COLUMN disproved;
