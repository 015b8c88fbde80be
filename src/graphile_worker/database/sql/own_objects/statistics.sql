-- Figures of what workers of this package did, samples of the backlog, and which pool does the regular work on them.
-- Other runtimes use none of these tables.

-- One row for each minute, task and pool that ran jobs. After some minutes the rows of the pools are folded into one,
-- whose pool_id is empty. Histograms count by time: see history/statistics.py. They have no trailing zeros.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_minutes (
    minute timestamptz not null, -- by the clock of the server
    task text not null,
    pool_id text not null,
    completed integer not null,
    failed integer not null, -- attempts that failed and are retried
    permanently_failed integer not null,
    run_seconds double precision not null,
    wait_seconds double precision not null,
    longest double precision not null, -- the longest run time in seconds
    run_times integer[] not null,
    wait_times integer[] not null,
    constraint _private_py_minutes_pkey primary key (minute, task, pool_id)
)
with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

-- The rows to fold. Not if it exists: the statement would wait for all who write to the table.
do $body$
begin
    if pg_catalog.to_regclass($inner_body$:GRAPHILE_WORKER_SCHEMA._private_py_minutes_pools_index$inner_body$::text) is null then
        create index _private_py_minutes_pools_index
        on :GRAPHILE_WORKER_SCHEMA._private_py_minutes (minute)
        where pool_id <> '';
    end if;
end;
$body$;

-- The sum of all folded minutes, for each hour and task.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_hours (
    hour timestamptz not null,
    task text not null,
:include summed_columns
    constraint _private_py_hours_pkey primary key (hour, task)
)
with (fillfactor = 70);

-- The jobs table every ten seconds: counters since the server started counting, and what is waiting.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_samples (
    at timestamptz not null,
    added bigint not null,
    deleted bigint not null,
    updated bigint not null,
    live bigint not null, -- all jobs, as the server's statistics say
    ready bigint not null,
    scheduled bigint not null,
    failed bigint not null, -- permanently
    is_estimate boolean not null, -- whether one of the three counts is estimated
    oldest_wait double precision not null, -- seconds since the oldest ready job could run
    constraint _private_py_samples_pkey primary key (at)
);

-- Regular work that one pool does for all, and when it was done last.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_duties (
    name text not null,
    pool_id text not null,
    done_at timestamptz not null,
    constraint _private_py_duties_pkey primary key (name)
);

-- The sum of the hours of a day of UTC, for each task. A day is folded some hours after it has ended.
create table if not exists :GRAPHILE_WORKER_SCHEMA._private_py_days (
    day timestamptz not null,
    task text not null,
:include summed_columns
    constraint _private_py_days_pkey primary key (day, task)
);

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
set search_path to pg_catalog, pg_temp
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
set search_path to pg_catalog, pg_temp
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
