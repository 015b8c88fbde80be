-- Keep jobs as they are before a change. Call it in the transaction of the change, after locking them.
-- $1 id in the audit, $2 job ids.
-- Returns how many were kept.
with kept as (
    insert into :GRAPHILE_WORKER_SCHEMA._private_py_before (audit_id, job_id, task, queue_name, job)
    select
        $1::bigint, job.id,
        coalesce((
            select tasks.identifier
            from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
            where tasks.id = job.task_id
        ), ''),
        (
            select job_queues.queue_name
            from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
            where job_queues.id = job.job_queue_id
        ),
        pg_catalog.row_to_json(job)
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    where job.id = any ($2::bigint[])
    on conflict (audit_id, job_id) do nothing
    returning job_id
)
select count(*) from kept
