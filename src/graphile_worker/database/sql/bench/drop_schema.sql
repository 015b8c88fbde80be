-- Remove the scratch schema of a benchmark and everything in it.
drop schema if exists :GRAPHILE_WORKER_SCHEMA cascade
