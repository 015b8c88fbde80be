-- Block until in-flight adds that have read a queue are committed, and keep new ones out.
lock table :GRAPHILE_WORKER_SCHEMA._private_job_queues in access exclusive mode
