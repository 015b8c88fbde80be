-- Empty the scratch schema of a benchmark between two measurements.
truncate :GRAPHILE_WORKER_SCHEMA._private_jobs, :GRAPHILE_WORKER_SCHEMA._private_job_queues
