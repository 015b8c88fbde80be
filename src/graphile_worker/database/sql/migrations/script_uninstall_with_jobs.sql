-- Drop the schema, and the jobs with it.
drop schema if exists :GRAPHILE_WORKER_SCHEMA cascade;
