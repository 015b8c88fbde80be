-- Add deleted jobs again, under new ids. A job whose key another one has by now stays away.
-- $1 id in the audit, $2 job ids, $3 the name of the jobs table with its schema, quoted.
-- Returns job_id and new_id of those added.
with wanted as materialized (
    select
        kept.job_id,
        nextval(pg_get_serial_sequence($3::text, 'id'::text)::regclass) as new_id,
        (
            select tasks.id
            from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
            where tasks.identifier = kept.task
        ) as new_task_id,
        (
            select job_queues.id
            from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
            where job_queues.queue_name = pg_catalog.regexp_replace(kept.queue_name, ' \[[1-9][0-9]*\]$', '')
        ) as new_queue_id,
        before.payload, before.priority, before.run_at, before.attempts, before.max_attempts, before.last_error,
        before.created_at, before.key, before.revision, before.flags
    from :GRAPHILE_WORKER_SCHEMA._private_py_before as kept
    cross join lateral pg_catalog.json_populate_record(null:::GRAPHILE_WORKER_SCHEMA._private_jobs, kept.job) as before
    where kept.audit_id = $1::bigint and kept.job_id = any ($2::bigint[])
),
added as (
    insert into :GRAPHILE_WORKER_SCHEMA._private_jobs
        (id, job_queue_id, task_id, payload, priority, run_at, attempts, max_attempts, last_error, created_at, key,
         revision, flags)
    overriding system value
    select
        wanted.new_id, wanted.new_queue_id, wanted.new_task_id, wanted.payload, wanted.priority, wanted.run_at,
        wanted.attempts, wanted.max_attempts, wanted.last_error, wanted.created_at, wanted.key, wanted.revision,
        wanted.flags
    from wanted
    on conflict do nothing
    returning id
)
select wanted.job_id, wanted.new_id
from wanted
where wanted.new_id in (select added.id from added)
order by wanted.job_id
