DROP VIEW pass_summary;
DROP VIEW target_health;
DROP VIEW active_cooldowns;
DROP VIEW repair_history;
DROP VIEW finding_history;
DROP VIEW open_findings;
