-- Part of the statements that cancel jobs: those of `found` that are not in `removed` are running. As with remove_job, they
-- lose their key and their attempts, so that no runtime runs them again. `request` has the reason and the schema's name.
detached as (
    update :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    set
        key = null,
        attempts = greatest(job.attempts, job.max_attempts),
        -- Later than the lock, however old this transaction is, and whatever clock the worker uses: see cut_off.
        updated_at = greatest(
            clock_timestamp(), job.locked_at + interval '1 microsecond', job.created_at + interval '1 microsecond'
        )
    from found
    where job.id = found.id and found.id <> all (array(select removed.id from removed))
    returning job.id, job.task_id
),
asked as (
    insert into :GRAPHILE_WORKER_SCHEMA._private_py_cancels (job_id, reason)
    select detached.id, request.reason from detached cross join request
    on conflict (job_id) do nothing
),
told as materialized (
    select pg_notify('worker:py', pg_catalog.json_build_object('schema', request.schema_name)::text)
    from request
    where exists (select from detached)
)
