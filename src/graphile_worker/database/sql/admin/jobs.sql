-- Single jobs and small sets of them, by id.

-- statement: lock_jobs
-- Lock jobs by id, in the order of their ids, so that two callers cannot wait for each other; see how they stand.
-- $1 job ids.
:include job_to_change
where job.id = any ($1::bigint[])
order by job.id
for update of job

-- statement: lock_free_jobs
-- The same as lock_jobs, without waiting for other transactions: their jobs are left out.
-- $1 job ids.
:include job_to_change
where job.id = any ($1::bigint[])
order by job.id
for update of job skip locked

-- statement: existing_jobs
-- Which of these jobs exist.
-- $1 job ids.
select job.id from :GRAPHILE_WORKER_SCHEMA._private_jobs as job where job.id = any ($1::bigint[])

-- statement: current_states
-- How jobs stand, by id.
--
-- Ids near each other are read as one range: before PostgreSQL 17, a list of ids descends the index for each of them.
-- A range begins and ends with a wanted id, so an id without neighbours reads its own row only.
--
-- $1 bigint[]  job ids
select
    job.id, job.attempts, job.max_attempts, job.run_at,
    case
        when standing.state in ('running', 'failed') then standing.state
        when job.attempts > 0 then 'retrying'
        else 'ready'
    end as state
from (
    select min(wanted.id) as first, max(wanted.id) as last
    from pg_catalog.unnest($1::bigint[]) as wanted (id)
    group by wanted.id >> 5
) as range
cross join lateral (
    select
        candidate.id, candidate.attempts, candidate.max_attempts, candidate.run_at, candidate.locked_at,
        candidate.is_available, candidate.updated_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as candidate
    where candidate.id >= range.first and candidate.id <= range.last
    limit 32 -- as many as there are in a range; keeps the list of ids out of the index condition
) as job
:include back_off
:include standing
where job.id = any ($1::bigint[])
order by job.id

-- statement: payloads_of_jobs
-- The payloads of jobs, except long ones.
-- $1 job ids, $2 how many bytes at most.
select job.id, job.payload::text as payload
from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
where job.id = any ($1::bigint[]) and pg_catalog.octet_length(job.payload::text) <= $2::integer

-- statement: tasks_of_jobs
-- The tasks of some jobs.
--
-- $1 bigint[]  job ids
-- Returns id, task.
select job.id, task.identifier as task
from pg_catalog.unnest($1::bigint[]) as wanted (id)
cross join lateral (
  select id, task_id from :GRAPHILE_WORKER_SCHEMA._private_jobs where id = wanted.id
  limit 1 -- keeps the planner from reading the whole table once
) job
join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = job.task_id

-- statement: running_jobs
-- The tasks of some jobs, by id.
--
-- $1 bigint[]  ids
-- Returns id, task_identifier, locked_by, and locked_at in seconds since 1970, for the jobs that exist and are locked.
select
  jobs.id, coalesce(tasks.identifier, '') as task_identifier, jobs.locked_by,
  date_part('epoch', jobs.locked_at) as locked_at
from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = jobs.task_id
where jobs.id = any ($1::bigint[])
and jobs.locked_at is not null

-- statement: edit_payload
-- Change the payload of a job that nothing has changed since it was read, and that is not locked.
-- $1 bigint   id
-- $2 integer  the revision that was read
-- $3 text     the payload, JSON
-- Returns the new revision; nothing if the job is gone, locked or changed.
update :GRAPHILE_WORKER_SCHEMA._private_jobs as job
set payload = $3::text::json, revision = job.revision + 1, updated_at = now()
where job.id = $1::bigint and job.revision = $2::integer and job.locked_at is null
returning job.revision

-- statement: neighbours_by_key
-- Other jobs whose keys begin like that of a job: the next ones in the index of keys, in both directions.
-- $1 text     the key
-- $2 text     the beginning
-- $3 integer  how many at most in each direction
-- Returns id, key, by key.
select found.id, found.key
from (
    (
        select job.id, job.key
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where job.key > $1::text
        order by job.key
        limit $3::integer
    )
    union all
    (
        select job.id, job.key
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where job.key < $1::text
        order by job.key desc
        limit $3::integer
    )
) as found
where pg_catalog.starts_with(found.key, $2::text)
order by found.key

-- statement: run_outcomes @unkept
-- What became of some jobs. The variant `unkept` is for a schema without a history.
--
-- $1 bigint[]  job ids
-- Returns job_id, state (as the row or the history says; gone if neither does), finished_at (seconds since 1970), duration (of
-- the last attempt, in seconds), error (its first characters).
select
  wanted.job_id,
  case
    when job.id is null then coalesce(last_finished.state, 'gone')
    when standing.state in ('scheduled', 'ready') and job.attempts > 0 then 'retry'
    else standing.state
  end as state,
  date_part('epoch', last_finished.finished_at) as finished_at,
  last_finished.duration,
  pg_catalog.left(coalesce(job.last_error, last_finished.error), 500) as error
from pg_catalog.unnest($1::bigint[]) as wanted (job_id)
left join lateral (
  select id, locked_at, is_available, attempts, run_at, updated_at, last_error
  from :GRAPHILE_WORKER_SCHEMA._private_jobs where id = wanted.job_id
  limit 1 -- keeps the planner from reading the whole table once
) job on true
:include back_off
:include standing
:include last_finished

-- statement: usual_wait
-- How long the oldest ready job usually waits, from the samples of the last day without the last half hour.
--
-- Returns the wait in seconds that nine of ten samples do not exceed; null if there are fewer than 60.
select case when count(*) >= 60::bigint then
  pg_catalog.percentile_cont(0.9::double precision) within group (order by samples.oldest_wait)
end
from :GRAPHILE_WORKER_SCHEMA._private_py_samples as samples
where samples.at >= now() - '1 day'::interval
and samples.at < now() - '30 minutes'::interval

-- statement: is_task
-- Whether jobs of this task were ever added.
--
-- $1 text  task identifier
select exists (
  select from :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks where tasks.identifier = $1::text
)

-- part: last_finished
left join lateral (
  select state, error, finished_at, duration
  from :GRAPHILE_WORKER_SCHEMA._private_py_history
  where job_id = wanted.job_id and job.id is null
  order by date_part('epoch', finished_at) desc -- not the column, whose index would be read to its end
  limit 1
) last_finished on true

-- part: last_finished@unkept
cross join (
  select null::text as state, null::text as error, null::timestamptz as finished_at, null::double precision as duration
) last_finished

-- part: job_to_change
-- A job that an operator wants to change. One whose lock is older than four hours counts as unlocked.
select
    job.id, job.attempts, job.max_attempts, job.locked_by,
    case
        when standing.state <> 'running' or job.locked_at >= now() - interval '4 hours' then standing.state
        when job.run_at > now() then 'scheduled'
        else 'ready'
    end as state
from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
:include back_off
:include standing

-- statement: jobs_ahead
-- Ready jobs that come before one, in the order in which workers take them, counted up to a bound.
-- $1 integer  its priority
-- $2 float8   its run_at, seconds since 1970
-- $3 bigint   its id
-- $4 integer  how many to count at most
-- Returns jobs, and same_task (how many of those that were counted have the task $5).
-- $5 integer  the id of its task
with recursive
beginning (priority) as (select (-32768)::smallint),
:include first_of_priority
,
ahead as (
    select job.task_id
    from (select priority from first_of_priority where priority <= $1::integer) as first_of_priority
    cross join lateral (
        select job.task_id
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
        where job.is_available = true
        and (job.priority, job.run_at) >= (first_of_priority.priority, '-infinity'::timestamptz)
        and (job.priority, job.run_at) <= (first_of_priority.priority, now())
        and (job.priority, job.run_at, job.id) < ($1::integer, to_timestamp($2::float8), $3::bigint)
        order by job.priority, job.run_at
        limit $4::integer
    ) as job
    limit $4::integer
)
select count(*) as jobs, count(*) filter (where ahead.task_id = $5::integer) as same_task from ahead
