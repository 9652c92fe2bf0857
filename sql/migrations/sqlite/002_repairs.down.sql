DROP TABLE store_probes;
DROP TABLE refetch_attempts;
DROP TABLE cooldowns;
DROP TABLE repair_fragments;
DROP TABLE repairs;
DROP TABLE locks;
