-- Names of tasks and queues.

-- statement: attempted_task_names
-- The tasks of jobs that a worker of any runtime has locked at least once, among the newest jobs.
--
-- Returns identifier.
select distinct task.identifier
from (
  select job.task_id, job.attempts, job.locked_at
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  order by job.id desc
  limit 10000
) job
join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = job.task_id
where job.locked_at is not null or job.attempts > 0::smallint

-- statement: get_queue_names
-- Names of queues, one row per id, in the order of the ids (QN1); for a track, the name of its queue.
-- $1 text[]  ids of queues; an id may occur more than once
-- Returns queue_name text, null where there is no such queue.
select pg_catalog.regexp_replace(job_queues.queue_name, ' \[[1-9][0-9]*\]$', '') as queue_name
from pg_catalog.unnest($1::text[]::integer[]) with ordinality as wanted (id, position)
left join :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues on job_queues.id = wanted.id
order by wanted.position;

-- statement: get_task_description
-- What workers say about a task. Needs own_objects/workers.
--
-- $1 text  its identifier
select runbook, owner, payload_type, payload_schema::text as payload_schema
from :GRAPHILE_WORKER_SCHEMA._private_py_task_descriptions
where identifier = $1::text

-- statement: get_task_ids
-- The ids of task identifiers.
--
-- $1 text[]  task identifiers
-- Returns id, identifier.
select id, identifier from :GRAPHILE_WORKER_SCHEMA._private_tasks where identifier = any ($1::text[])

-- statement: is_anything_waiting
-- Whether any job waits, ready or scheduled, and how many of these tasks have a row.
--
-- $1 text[]  task identifiers, each once
-- Returns one row: is_anything_waiting (boolean), known_tasks (bigint).
select
    exists (select from :GRAPHILE_WORKER_SCHEMA._private_jobs where is_available) as is_anything_waiting,
    (
        select count(*) from :GRAPHILE_WORKER_SCHEMA._private_tasks where identifier = any ($1::text[])
    ) as known_tasks

-- statement: known_task_names
-- Every task identifier that jobs or workers have registered, until a cleanup deletes it.
--
-- Returns identifier.
select identifier from :GRAPHILE_WORKER_SCHEMA._private_tasks

-- statement: queue_ids
-- Queues by name.
--
-- $1 text[]  names
-- Returns id and queue_name.
select id, queue_name
from :GRAPHILE_WORKER_SCHEMA._private_job_queues
where queue_name = any ($1::text[])
order by id

-- statement: ready_tasks
-- Tasks that have ready jobs, from the first ready jobs of each priority (at most 100 priorities) in the index of the
-- fetch: what it reads does not depend on the number of jobs. Workers run jobs in that order, so the jobs that no worker
-- takes are soon the first ones.
--
-- $1 timestamptz  the time that counts as now, or null for the server's
-- $2 integer      how many jobs of each priority to read
-- Returns for each task: task_identifier; jobs; has_more (whether some jobs were not read); age (seconds since the oldest
-- could have run); in_locked_queues (jobs), and queue_name and locked_by of the oldest; and about the other jobs: free_age
-- (null if there are none) and flags (those of the oldest).
with recursive
moment as materialized (select coalesce($1::timestamptz, now()) as at),
beginning (priority) as (select (-32768)::smallint),
:include first_of_priority
,
ready as materialized (
    select
        first_of_priority.priority,
        job.task_id,
        date_part('epoch', (select at from moment)) - date_part('epoch', greatest(job.run_at, job.created_at)) as age,
        job.flags,
        locked.queue_name as locked_queue,
        locked.locked_by
    from first_of_priority
    cross join lateral (
        select jobs.task_id, jobs.run_at, jobs.created_at, jobs.flags, jobs.job_queue_id
        from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
        where jobs.is_available = true
        -- As a range, not `priority = ...`: the planner would rather sort all jobs of the priority.
        and (jobs.priority, jobs.run_at) >= (first_of_priority.priority, '-infinity'::timestamptz)
        and (jobs.priority, jobs.run_at) <= (first_of_priority.priority, (select at from moment))
        order by jobs.priority, jobs.run_at
        limit $2::integer
    ) as job
    left join lateral (
        select pg_catalog.regexp_replace(queues.queue_name, ' \[[1-9][0-9]*\]$', '') as queue_name, queues.locked_by
        from :GRAPHILE_WORKER_SCHEMA._private_job_queues as queues
        where queues.id = job.job_queue_id and queues.locked_at is not null
        limit 1 -- one look per job, never a scan of all queues
    ) as locked on true
)
select
    coalesce(tasks.identifier, '') as task_identifier,
    counted.jobs,
    exists (select from ready group by ready.priority having count(*) >= $2::integer::bigint) as has_more,
    counted.age,
    counted.in_locked_queues,
    counted.queue_name,
    counted.locked_by,
    counted.free_age,
    array(
        select pg_catalog.jsonb_object_keys(counted.flags) as flag
        where pg_catalog.jsonb_typeof(counted.flags) = 'object'::text
        order by flag
    ) as flags
from (
    select
        ready.task_id,
        count(*) as jobs,
        max(ready.age) as age,
        count(*) filter (where ready.locked_queue is not null) as in_locked_queues,
        (pg_catalog.array_agg(ready.locked_queue order by ready.age desc, ready.locked_queue)
            filter (where ready.locked_queue is not null))[1] as queue_name,
        (pg_catalog.array_agg(ready.locked_by order by ready.age desc, ready.locked_queue)
            filter (where ready.locked_queue is not null))[1] as locked_by,
        max(ready.age) filter (where ready.locked_queue is null) as free_age,
        (pg_catalog.array_agg(ready.flags order by ready.age desc) filter (where ready.locked_queue is null))[1] as flags
    from ready
    group by ready.task_id
) as counted
left join :GRAPHILE_WORKER_SCHEMA._private_tasks as tasks on tasks.id = counted.task_id
order by counted.age desc, task_identifier

-- statement: registered_task_names
-- The tasks of all workers of this package that ever ran. Needs own_objects/history.
--
-- Returns identifier.
select distinct identifier from :GRAPHILE_WORKER_SCHEMA._private_py_task_names

-- statement: register_tasks
-- Create the missing rows of task identifiers. Existing ones use up no sequence values.
--
-- $1 text[]  task identifiers
insert into :GRAPHILE_WORKER_SCHEMA._private_tasks (identifier)
select name from pg_catalog.unnest($1::text[]) as wanted (name)
where not exists (
  select from :GRAPHILE_WORKER_SCHEMA._private_tasks task where task.identifier = wanted.name
)
on conflict (identifier) do nothing

-- statement: was_task_known
-- Whether a task identifier was in the database before a job was added for it. The transaction that added the job has
-- written both rows if it was not. A job that is not committed yet, or gone, cannot be seen; a task that can was there.
--
-- $1 text    task identifier
-- $2 bigint  job id
-- Returns a boolean.
select exists (
  select from :GRAPHILE_WORKER_SCHEMA._private_tasks tasks
  where tasks.identifier = $1::text
    and tasks.xmin is distinct from (
      select jobs.xmin from :GRAPHILE_WORKER_SCHEMA._private_jobs jobs where jobs.id = $2::bigint
    )
)

-- statement: worker_task_names
-- The task identifiers of the pools of this package that are alive.
--
-- $1 text  name of the schema
-- Returns identifier.
with
:include workers_with_liveness
select distinct pg_catalog.unnest(worker.tasks) as identifier from worker where worker.is_alive
