-- Wait until nobody has looked a queue up whose job is not committed yet, and let nobody begin to.
lock table :GRAPHILE_WORKER_SCHEMA._private_job_queues in access exclusive mode
