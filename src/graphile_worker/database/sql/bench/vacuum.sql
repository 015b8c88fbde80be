-- Bring the tables of a benchmark into the state in which autovacuum would leave them.
vacuum (analyze) :GRAPHILE_WORKER_SCHEMA._private_jobs, :GRAPHILE_WORKER_SCHEMA._private_job_queues
