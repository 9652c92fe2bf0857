-- For tests of the way back: this forgets everything.
DROP TABLE reconcile.pass_findings;
DROP TABLE reconcile.findings;
DROP TABLE reconcile.pass_targets;
DROP TABLE reconcile.targets;
DROP TABLE reconcile.passes;
DROP FUNCTION reconcile.now();
DROP TABLE reconcile.schema_migrations;
DROP SCHEMA reconcile;
