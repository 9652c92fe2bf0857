DROP VIEW reconcile.post_history;
DROP TABLE reconcile.repair_posts;
