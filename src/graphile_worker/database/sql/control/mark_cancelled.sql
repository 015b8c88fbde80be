-- Note that jobs are cancelled, before they are ended as such.
--
-- $1 bigint[]  job ids
-- $2 text      the reason
insert into :GRAPHILE_WORKER_SCHEMA._private_py_cancels (job_id, reason)
select job.id, $2::text from pg_catalog.unnest($1::bigint[]) as job (id)
on conflict (job_id) do nothing
