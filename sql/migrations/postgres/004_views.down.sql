DROP VIEW reconcile.pass_summary;
DROP VIEW reconcile.target_health;
DROP VIEW reconcile.active_cooldowns;
DROP VIEW reconcile.repair_history;
DROP VIEW reconcile.finding_history;
DROP VIEW reconcile.open_findings;
