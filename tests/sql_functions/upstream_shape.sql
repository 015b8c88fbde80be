-- add_job and add_jobs in the shape that loses keyed adds: they look at the keyed job without locking it, cut it
-- off if it was seen running, and then let the insert update it only while nobody runs it. A job that gets
-- locked in between is neither cut off nor updated, and the new work is gone. Installed by tests to prove that
-- they notice. Everything but that weakness follows the same rules as the package's own functions.

create or replace function :GRAPHILE_WORKER_SCHEMA.add_jobs(
    specs :GRAPHILE_WORKER_SCHEMA.job_spec[],
    job_key_preserve_run_at boolean default false
)
returns setof :GRAPHILE_WORKER_SCHEMA._private_jobs
language plpgsql
as $body$
begin
    insert into :GRAPHILE_WORKER_SCHEMA._private_tasks (identifier)
    select distinct spec.identifier
    from unnest(specs) as spec
    where not exists (
        select from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks where tasks.identifier = spec.identifier
    )
    on conflict do nothing;

    insert into :GRAPHILE_WORKER_SCHEMA._private_job_queues (queue_name)
    select distinct spec.queue_name
    from unnest(specs) as spec
    where spec.queue_name is not null
    and not exists (
        select from :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
        where job_queues.queue_name = spec.queue_name
    )
    on conflict do nothing;

    update :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    set key = null, attempts = jobs.max_attempts, updated_at = now()
    from unnest(specs) as spec
    where spec.job_key is not null and jobs.key = spec.job_key and not jobs.is_available;

    perform pg_notify('jobs:insert', json_build_object('r', random(), 'count', array_length(specs, 1))::text);

    return query
    insert into :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        (job_queue_id, task_id, payload, run_at, max_attempts, key, priority, flags)
    select
        job_queues.id, tasks.id, coalesce(spec.payload, '{}'::json), coalesce(spec.run_at, now()),
        coalesce(spec.max_attempts, 25::smallint), spec.job_key, coalesce(spec.priority, 0::smallint),
        (select jsonb_object_agg(flag, true) from unnest(spec.flags) as flag)
    from unnest(specs) as spec
    join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.identifier = spec.identifier
    left join :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues on job_queues.queue_name = spec.queue_name
    on conflict (key) do update set
        job_queue_id = excluded.job_queue_id,
        task_id = excluded.task_id,
        payload = case
            when json_typeof(jobs.payload) = 'array' and json_typeof(excluded.payload) = 'array'
                then (jobs.payload::jsonb || excluded.payload::jsonb)::json
            else excluded.payload
        end,
        max_attempts = excluded.max_attempts,
        run_at = case
            when job_key_preserve_run_at and jobs.attempts = 0 then jobs.run_at
            else excluded.run_at
        end,
        priority = excluded.priority,
        revision = jobs.revision + 1,
        flags = excluded.flags,
        attempts = 0,
        last_error = null,
        updated_at = now()
    where jobs.locked_at is null
    returning jobs.*;
end;
$body$;

create or replace function :GRAPHILE_WORKER_SCHEMA.add_job(
    identifier text,
    payload json default null,
    queue_name text default null,
    run_at timestamptz default null,
    max_attempts integer default null,
    job_key text default null,
    priority integer default null,
    flags text[] default null,
    job_key_mode text default 'replace'
)
returns :GRAPHILE_WORKER_SCHEMA._private_jobs
language plpgsql
as $body$
declare
    v_job :GRAPHILE_WORKER_SCHEMA._private_jobs;
begin
    select added.* into v_job
    from :GRAPHILE_WORKER_SCHEMA.add_jobs(
        array[(
            identifier, payload, queue_name, run_at, max_attempts::smallint, job_key, priority::smallint, flags
        ):::GRAPHILE_WORKER_SCHEMA.job_spec],
        coalesce(job_key_mode = 'preserve_run_at', false)
    ) as added;
    return v_job;
end;
$body$;
