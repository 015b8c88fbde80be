-- Note that the handlers of these permanently failed jobs were told. In the transaction that told them.
--
-- $1 bigint[]  job ids
insert into :GRAPHILE_WORKER_SCHEMA._private_py_told_failures (job_id, failed_at)
select job_id, date_part('epoch', now()) from pg_catalog.unnest($1::bigint[]) as told (job_id)
on conflict (job_id) do update set failed_at = excluded.failed_at
