-- Record that a pool is about to run a recovered job: if it dies too, the job may be the cause.
--
-- $1 text    pool id
-- $2 bigint  job id
insert into :GRAPHILE_WORKER_SCHEMA._private_py_recoveries (job_id, recoveries, started_by)
values ($2, 0, $1)
on conflict (job_id) do update set started_by = excluded.started_by
