-- For tests of the way back: this forgets everything.
DROP TABLE pass_findings;
DROP TABLE findings;
DROP TABLE pass_targets;
DROP TABLE targets;
DROP TABLE passes;
DROP VIEW clock;
DROP TABLE schema_migrations;
