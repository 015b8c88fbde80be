-- What operators ask of a pool. Cheap while they ask for nothing: the tables are empty.
--
-- $1 text  pool id
-- Returns a row per paused task (identifier, or empty for every task; seconds until its end, or null) and per job of
-- this pool that was cancelled.
select task, null::bigint as job_id, reason, date_part('epoch', until - now()) as seconds
from :GRAPHILE_WORKER_SCHEMA._private_py_pauses
where until is null or until > now()
union all
select null, cancel.job_id, cancel.reason, null
from :GRAPHILE_WORKER_SCHEMA._private_py_cancels cancel
join :GRAPHILE_WORKER_SCHEMA._private_jobs job on job.id = cancel.job_id
where job.locked_by = $1::text
