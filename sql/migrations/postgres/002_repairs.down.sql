DROP TABLE reconcile.store_probes;
DROP TABLE reconcile.refetch_attempts;
DROP TABLE reconcile.cooldowns;
DROP TABLE reconcile.repair_fragments;
DROP TABLE reconcile.repairs;
DROP FUNCTION reconcile.guard_repair();
DROP TABLE reconcile.locks;
