-- What an autoscaler asks: how many jobs are ready, and how long the oldest one has waited. Both functions run with the
-- rights of their owner, so a role needs nothing but the right to execute them, which has to be granted.

-- Ready jobs, at most `at_most`; with `for_tasks`, those of these tasks among the first 50,000 of each priority. It reads
-- the index of the fetch, priority by priority (at most 100), and touches no job of the future.
create or replace function :GRAPHILE_WORKER_SCHEMA._private_py_ready_jobs(
    at_most integer default 1000, for_tasks text[] default null
)
returns integer
language sql
stable
security definer
set search_path to ''
as $body$
with recursive first_of_priority as (
    (
        select jobs.priority, 1 as step
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available = true
        order by jobs.priority, jobs.run_at
        limit 1
    )
    union all
    select following.priority, first_of_priority.step + 1
    from first_of_priority
    cross join lateral (
        select jobs.priority
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available = true
        and jobs.priority > first_of_priority.priority
        order by jobs.priority, jobs.run_at
        limit 1
    ) as following
    where first_of_priority.step < 100
),
wanted as (
    select array(
        select tasks.id
        from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks
        where tasks.identifier = any (for_tasks)
    ) as task_ids
),
ready as (
    select 1 as one
    from first_of_priority
    cross join lateral (
        select jobs.task_id
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available = true
        and jobs.priority = first_of_priority.priority
        and jobs.run_at <= now()
        order by jobs.run_at
        limit case when for_tasks is null then greatest(at_most, 0) else 50000 end
    ) as job
    where for_tasks is null or job.task_id = any ((select wanted.task_ids from wanted)::integer[])
    limit greatest(at_most, 0)
)
select count(*)::integer from ready
$body$;

-- Seconds for which the oldest ready job has waited; 0 if none is ready.
create or replace function :GRAPHILE_WORKER_SCHEMA._private_py_oldest_ready_age()
returns double precision
language sql
stable
security definer
set search_path to ''
as $body$
with recursive first_of_priority as (
    (
        select jobs.id, jobs.priority, jobs.run_at, 1 as step
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available = true
        order by jobs.priority, jobs.run_at
        limit 1
    )
    union all
    select following.id, following.priority, following.run_at, first_of_priority.step + 1
    from first_of_priority
    cross join lateral (
        select jobs.id, jobs.priority, jobs.run_at
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available = true
        and jobs.priority > first_of_priority.priority
        order by jobs.priority, jobs.run_at
        limit 1
    ) as following
    where first_of_priority.step < 100
)
select coalesce(
    greatest(
        date_part('epoch', now()) - date_part('epoch', min(greatest(jobs.run_at, jobs.created_at))),
        0::double precision
    ),
    0::double precision
)
from first_of_priority
join :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs on jobs.id = first_of_priority.id
where first_of_priority.run_at <= now()
$body$;

revoke execute on function :GRAPHILE_WORKER_SCHEMA._private_py_ready_jobs(integer, text[]) from public;
revoke execute on function :GRAPHILE_WORKER_SCHEMA._private_py_oldest_ready_age() from public;

insert into :GRAPHILE_WORKER_SCHEMA._private_py_migrations (id, name)
values (22, 'monitoring')
on conflict (id) do nothing;
