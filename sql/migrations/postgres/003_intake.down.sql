DROP TABLE reconcile.task_failures;
DROP FUNCTION reconcile.take_in_failure();
