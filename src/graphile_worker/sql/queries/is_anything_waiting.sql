-- Whether there is any job that a worker could take, now or later.
select exists (select from :GRAPHILE_WORKER_SCHEMA._private_jobs where is_available)
