-- Wait until nobody has looked a task's name up whose job is not committed yet, and let nobody begin to.
lock table :GRAPHILE_WORKER_SCHEMA._private_tasks in access exclusive mode
