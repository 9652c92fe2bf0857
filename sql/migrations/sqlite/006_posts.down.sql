DROP VIEW post_history;
DROP TABLE repair_posts;
