-- Limits of tasks.

-- statement: add_missing_limits
-- Write those limits of a worker that have no row. Parameters are those of register_limits.
insert into :GRAPHILE_WORKER_SCHEMA._private_py_limits
  (name, code_concurrency, code_starts, code_period, code_burst, tasks)
select given.name, given.concurrency, given.starts, given.period, given.burst, given.tasks::text[]
from unnest(
  $1::text[], $2::integer[], $3::double precision[], $4::double precision[], $5::double precision[], $6::text[]
) as given (name, concurrency, starts, period, burst, tasks)
on conflict (name) do nothing

-- statement: get_limited_jobs @routed
-- Lock the next jobs of limited tasks; see the function.
--
-- $1 to $8     as in get_plain_jobs_above_watermarks; $6 to $8 are null for all priorities
-- $9 text[]    names of the limits
-- $10 boolean  whether there are wide queues
-- Returns the columns of a job, unordered; then a row without an id whose payload is the state of the limits.
select * from
:include fetch_function
(
  $1::text, $2::text, $3::integer, $4::text[], $5::timestamptz, $6::smallint[], $7::smallint[], $8::double precision[],
  $9::text[], $10::boolean
)

-- statement: admit_held_jobs
-- Let the jobs of a held batch use their limits; see the function.
--
-- $1 text      pool id
-- $2 bigint    the number of the batch's transaction
-- $3 bigint[]  job ids
-- $4 text[]    names of the limits
-- Returns the state of the limits.
select payload from :GRAPHILE_WORKER_SCHEMA._private_py_admit_held_jobs($1::text, $2::bigint, $3::bigint[], $4::text[])

-- statement: count_again
-- Note that these jobs use their limits, before they are locked in the ordinary way: their held batch was lost, and its row may be
-- gone.
--
-- $1 text      pool id
-- $2 bigint[]  job ids
-- $3 text[]    names of the limits
insert into :GRAPHILE_WORKER_SCHEMA._private_py_limit_holds (limit_name, job_id, pool_id, job_ids)
select limits.name, - txid_current(), $1::text, $2::bigint[]
from :GRAPHILE_WORKER_SCHEMA._private_py_limits limits
where limits.name = any ($3::text[]) and limits.max_running is not null
on conflict on constraint _private_py_limit_holds_pkey
do update set pool_id = excluded.pool_id, job_ids = excluded.job_ids

-- statement: count_no_more
-- The last statement of a held batch without jobs that outlast it: none of them uses a limit after the commit.
delete from :GRAPHILE_WORKER_SCHEMA._private_py_limit_holds
where limit_name = any ($1::text[]) and job_id = - txid_current()

-- statement: list_limits
-- Every limit: its bounds, where they come from, and how much of it is in use.
--
-- Returns a row per limit, by name.
select
  limits.name,
  limits.max_running as concurrency,
  coalesce(limits.set_starts, limits.code_starts)::integer as starts,
  coalesce(limits.set_period, limits.code_period) as period,
  case when limits.rate is not null then limits.burst::integer end as burst,
  limits.tasks,
  limits.set_at,
  pg_catalog.array_remove(
    array[
      case when limits.set_concurrency is not null then 'concurrency' end,
      case when limits.set_starts is not null then 'rate' end,
      case when limits.set_burst is not null then 'burst' end
    ],
    null
  ) as overridden,
  case when limits.max_running is not null then (
    select pg_catalog.count(distinct job.id)::integer from :GRAPHILE_WORKER_SCHEMA._private_py_limit_holds hold
    cross join lateral pg_catalog.jsonb_array_elements_text(
      case
        when pg_catalog.jsonb_typeof(pg_catalog.to_jsonb(hold) -> 'job_ids'::text) = 'array'
          then pg_catalog.to_jsonb(hold) -> 'job_ids'::text
        else pg_catalog.jsonb_build_array(hold.job_id) -- from before limits_by_fetch
      end
    ) as used (id)
    join :GRAPHILE_WORKER_SCHEMA._private_jobs job on job.id = used.id::bigint and (
      job.locked_by = hold.pool_id or (
:include is_batch_open
      )
    )
    where hold.limit_name = limits.name
  ) end as running,
  case when limits.rate is not null then floor(
    least(
      limits.burst,
      limits.tokens
      + limits.rate * greatest(0::double precision, date_part('epoch', clock_timestamp() - limits.refilled_at))
    )
  )::integer end as may_start
from :GRAPHILE_WORKER_SCHEMA._private_py_limits limits
order by limits.name

-- statement: ready_tasks
-- How many jobs of limited tasks are ready: one look for all limits of a worker. Locks nothing.
--
-- $1 text         ids of the tasks, as an array literal such as {1,2}
-- $2 integer      read at most this many jobs without a queue, and as many of named queues
-- $3 timestamptz  the worker's time, or null for the server's
-- Returns task_id, priority, the last run_at (seconds since 1970), is_queued and how many; whether a queue is free is not asked.
with recursive
task (ids) as materialized (select $1::text::integer[]),
:include plain_priority
,
plain as materialized (
  select found.task_id, found.priority, found.run_at
  from plain_priority cross join lateral (
    select job.task_id, job.priority, job.run_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is null
      and job.priority = plain_priority.priority and job.run_at <= coalesce($3::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
    order by job.run_at
    limit $2::integer
  ) found
  limit $2
),
:include ready_in_queues

-- statement: ready_tasks_above_watermarks
-- Like ready_tasks, but jobs without a queue are read in these ranges of priorities only.
--
-- $1 to $3               as in ready_tasks
-- $4 smallint[]          the lowest priority of each range, in ascending order ...
-- $5 smallint[]          ... the highest ...
-- $6 double precision[]  ... and the run_at to start from (seconds since 1970)
-- Returns the columns of ready_tasks.
with recursive
task (ids) as materialized (select $1::text::integer[]),
plain as materialized (
  select found.task_id, found.priority, found.run_at
  from unnest($4::smallint[], $5::smallint[], $6::double precision[]) as range (low, high, since)
  cross join lateral (
    select * from (
      select job.task_id, job.priority, job.run_at
      from :GRAPHILE_WORKER_SCHEMA._private_jobs job
      where range.low = range.high and job.is_available and job.job_queue_id is null
        and job.priority = range.low and job.run_at >= to_timestamp(range.since)
        and job.run_at <= coalesce($3::timestamptz, now())
        and job.task_id = any ((select ids from task)::integer[])
      order by job.run_at
      limit $2::integer
    ) known
    union all
    select * from (
      select job.task_id, job.priority, job.run_at
      from :GRAPHILE_WORKER_SCHEMA._private_jobs job
      where range.low < range.high and job.is_available and job.job_queue_id is null
        and job.priority between range.low and range.high
        and job.run_at <= coalesce($3::timestamptz, now())
        and job.task_id = any ((select ids from task)::integer[])
      order by job.priority, job.run_at
      limit $2::integer
    ) gap
  ) found
  limit $2
),
:include ready_in_queues

-- statement: register_limits
-- Write the limits of a worker that starts. The last start wins; bounds that operators have set are not touched.
--
-- $1 text[]              names
-- $2 integer[]           how many jobs may run at once, or null
-- $3 double precision[]  how many may start ...
-- $4 double precision[]  ... in a period of this many seconds, or null
-- $5 double precision[]  how many may start at once after a rest, or null
-- $6 text[]              identifiers of the tasks of each limit, as array literals
insert into :GRAPHILE_WORKER_SCHEMA._private_py_limits as limits
  (name, code_concurrency, code_starts, code_period, code_burst, tasks)
select given.name, given.concurrency, given.starts, given.period, given.burst, given.tasks::text[]
from unnest(
  $1::text[], $2::integer[], $3::double precision[], $4::double precision[], $5::double precision[], $6::text[]
) as given (name, concurrency, starts, period, burst, tasks)
order by given.name -- the same order in every worker, so that two of them cannot deadlock
on conflict (name) do update
set
  code_concurrency = excluded.code_concurrency,
  code_starts = excluded.code_starts,
  code_period = excluded.code_period,
  code_burst = excluded.code_burst,
  tasks = array(select pg_catalog.unnest(limits.tasks) union select pg_catalog.unnest(excluded.tasks) order by 1),
  started_at = now()

-- statement: reset_limit
-- Remove the bounds that operators have set for a limit, so that those of the code hold again.
--
-- $1 text  name
-- Returns the name; no row if there is no such limit. Notifies workers.
with changed as (
  update :GRAPHILE_WORKER_SCHEMA._private_py_limits
  set
    set_concurrency = null, set_starts = null, set_period = null, set_burst = null, set_at = null,
    is_awaited = false
:include changed_limit

-- statement: set_limit
-- Set bounds of a limit by hand. They win over those of the code.
--
-- $1 text              name
-- $2 integer           how many jobs may run at once; null leaves it as it is
-- $3 double precision  how many may start ...
-- $4 double precision  ... in a period of this many seconds; null leaves the rate as it is
-- $5 double precision  how many may start at once after a rest; null leaves it as it is
-- Returns the name; no row if there is no such limit. Notifies workers.
with changed as (
  update :GRAPHILE_WORKER_SCHEMA._private_py_limits
  set
    set_concurrency = coalesce($2::integer, set_concurrency),
    set_starts = coalesce($3::double precision, set_starts),
    set_period = coalesce($4::double precision, set_period),
    set_burst = coalesce($5::double precision, set_burst),
    set_at = now(),
    is_awaited = false
:include changed_limit

-- part: changed_limit
  where name = $1::text
  returning name
),
notified as materialized (select pg_notify('worker:py', '{"limits":1}') from changed)
select changed.name from changed cross join notified

-- part: fetch_function
:GRAPHILE_WORKER_SCHEMA._private_py_get_limited_jobs

-- part: fetch_function@routed
:GRAPHILE_WORKER_SCHEMA._private_py_get_limited_jobs_by_flags

-- part: ready_in_queues
-- Part of ready_tasks and ready_tasks_above_watermarks: the same for jobs of named queues, and the counts of both.
:include queue_priority
queued as materialized (
  select found.task_id, found.priority, found.run_at
  from queue_priority cross join lateral (
    select job.task_id, job.priority, job.run_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null
      and job.priority = queue_priority.priority and job.run_at <= coalesce($3::timestamptz, now())
      and job.task_id = any ((select ids from task)::integer[])
    order by job.run_at
    limit $2::integer
  ) found
  limit $2
)
select task_id, priority, date_part('epoch', max(run_at)) as run_at, false as is_queued, count(*)::integer as jobs
from plain group by task_id, priority
union all
select task_id, priority, date_part('epoch', max(run_at)) as run_at, true as is_queued, count(*)::integer as jobs
from queued group by task_id, priority
