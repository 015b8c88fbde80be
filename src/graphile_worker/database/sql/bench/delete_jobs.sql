-- Delete every job of a benchmark row by row, so that dead rows are left behind.
delete from :GRAPHILE_WORKER_SCHEMA._private_jobs
