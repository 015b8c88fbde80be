-- Block until in-flight adds that have read a task identifier are committed, and keep new ones out.
lock table :GRAPHILE_WORKER_SCHEMA._private_tasks in access exclusive mode
