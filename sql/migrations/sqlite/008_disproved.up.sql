-- Which copies of peers failed their proof. Explained in ../postgres.

ALTER TABLE refetch_attempts ADD COLUMN disproved TEXT NOT NULL DEFAULT '{}' CHECK (json_type(disproved) = 'object');
