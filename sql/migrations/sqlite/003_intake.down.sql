DROP TABLE task_failures;
