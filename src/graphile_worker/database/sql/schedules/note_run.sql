-- Note a run of a recurring job that was started by hand.
--
-- $1 text    its identifier
-- $2 bigint  job id
insert into :GRAPHILE_WORKER_SCHEMA._private_py_schedule_runs as run (identifier, job_ids, due_at)
values ($1::text, array[$2::bigint], array[now()])
on conflict (identifier) do update set
  job_ids = (pg_catalog.array_cat(excluded.job_ids, run.job_ids))[1:20],
  due_at = (pg_catalog.array_cat(excluded.due_at, run.due_at))[1:20]
