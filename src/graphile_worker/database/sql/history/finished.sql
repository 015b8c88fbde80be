-- Jobs that have ended.

-- statement: list_finished_jobs @uncompleted @before_13 @before_13@uncompleted
-- Finished jobs, the latest first.
--
-- $1 timestamptz  the earliest end, or null
-- $2 timestamptz  the latest end, or null
-- $3 timestamptz  the end of the last job of the previous page, or null
-- $4 bigint       its id
-- $5 integer      at most this many
-- $6 text         the state, or null
-- The variant `uncompleted` is for any other state than completed, which an index serves; `before_13` is for a server
-- without incremental sorts.
select
:include finished_columns
from (
:include latest_finished
) history
:include finished_names
order by history.finished_at desc, history.job_id desc

-- statement: list_finished_jobs_of_task @uncompleted @before_13 @before_13@uncompleted
-- Finished jobs of one task, the latest first. See list_finished_jobs for $1 to $6 and the variants.
--
-- $7 text  task identifier; a task whose row was deleted and added again has several ids
select
:include finished_columns
from (
  select found.*
  from (
    select id from :GRAPHILE_WORKER_SCHEMA._private_py_task_names where identifier = $7::text
    union
    select id from :GRAPHILE_WORKER_SCHEMA._private_tasks where identifier = $7::text
  ) wanted
  cross join lateral (
:include latest_of_task
  ) found
  order by found.finished_at desc, found.job_id desc
  limit $5
) history
:include finished_names
order by history.finished_at desc, history.job_id desc

-- statement: history_of_job
-- All that the history has of a job, the latest first: a permanently failed job that was retried has several.
--
-- $1 bigint  job id
select
:include finished_columns
from :GRAPHILE_WORKER_SCHEMA._private_py_history history
:include finished_names
where history.job_id = $1::bigint
order by history.finished_at desc

-- statement: whole_job
-- All that is known of one job, in one row: what is in the queue, its last row in the history, and the errors of its attempts.
--
-- $1 bigint  job id
-- Returns no row if there is nothing.
with job as (
  select job.*, task.identifier
  from :GRAPHILE_WORKER_SCHEMA._private_jobs job
  join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = job.task_id
  where job.id = $1::bigint
),
ended as (
  select history.*, coalesce(name.identifier, task.identifier) as identifier
  from :GRAPHILE_WORKER_SCHEMA._private_py_history history
:include finished_names
  where history.job_id = $1::bigint
  order by history.finished_at desc
  limit 1
),
failed as (
  select
    pg_catalog.json_agg(
      pg_catalog.json_build_object(
        'error_type', error.error_type, 'message', error.message, 'traceback', error.traceback,
        'pool_id', error.pool_id, 'failed_at', date_part('epoch', error.failed_at), 'duration', error.duration
      ) order by error.failed_at, error.attempt
    )::text as errors
  from :GRAPHILE_WORKER_SCHEMA._private_py_errors error
  where error.job_id = $1::bigint
)
select
  job.id is not null as is_in_queue,
  coalesce(job.identifier, ended.identifier) as task_identifier,
  coalesce(job.payload::text, ended.payload::text) as payload,
  coalesce(job.priority, ended.priority)::integer as priority,
  date_part('epoch', coalesce(job.created_at, ended.created_at)) as created_at,
  date_part('epoch', coalesce(job.run_at, ended.run_at)) as run_at,
  job.attempts >= job.max_attempts as is_last_attempt,
  date_part('epoch', job.locked_at) as locked_at,
  job.locked_by,
  job.last_error,
  ended.state,
  date_part('epoch', ended.started_at) as started_at,
  date_part('epoch', ended.finished_at) as finished_at,
  ended.pool_id,
  ended.result::text as result,
  ended.error,
  failed.errors
from failed
left join job on true
left join ended on true
where job.id is not null or ended.job_id is not null

-- statement: states_of_jobs
-- How jobs stand: the row of each, if it still exists, and its latest row in the history, if it was kept.
--
-- $1 bigint[]  job ids
-- Returns job_id, state, error, attempts, max_attempts, result: the state is `pending` for a job that is waiting or running, and `gone`
-- for one that has neither. A permanently failed job is `failed`, whether that was kept or not; its attempts
-- are those of the history, null while its row exists (see attempts_made).
select
  wanted.job_id,
  case
    when job.id is null then coalesce(last_finished.state, 'gone')
    when standing.state = 'failed' then 'failed'
    else 'pending'
  end as state,
  coalesce(job.last_error, last_finished.error) as error,
  case when job.id is null then last_finished.attempts when standing.state <> 'failed' then job.attempts end as attempts,
  coalesce(job.max_attempts, last_finished.max_attempts) as max_attempts,
  last_finished.result
from pg_catalog.unnest($1::bigint[]) as wanted (job_id)
left join lateral (
  select id, locked_at, is_available, run_at, updated_at, last_error, attempts, max_attempts
  from :GRAPHILE_WORKER_SCHEMA._private_jobs where id = wanted.job_id
  limit 1 -- keeps the planner from reading the whole table once
) job on true
:include back_off
:include standing
left join lateral (
  select state, error, attempts, max_attempts, result::text as result
  from :GRAPHILE_WORKER_SCHEMA._private_py_history
  where job_id = wanted.job_id and job.id is null
  order by date_part('epoch', finished_at) desc -- not the column, whose index would be read to its end
  limit 1
) last_finished on true

-- statement: states_without_history
-- The same as states_of_jobs where there is no history.
--
-- $1 bigint[]  job ids
select
  wanted.job_id,
  case
    when job.id is null then 'gone'
    when standing.state = 'failed' then 'failed'
    else 'pending'
  end as state,
  job.last_error as error,
  case when standing.state <> 'failed' then job.attempts end as attempts,
  job.max_attempts,
  null::text as result
from pg_catalog.unnest($1::bigint[]) as wanted (job_id)
left join :GRAPHILE_WORKER_SCHEMA._private_jobs job on job.id = wanted.job_id
:include back_off
:include standing

-- statement: attempts_made
-- How many attempts permanently failed jobs had. Their rows say that all were used, also if they were given up on the first.
--
-- A row of the history, or the error of the last attempt, tells it if it is of this very failure: it has its time, or the
-- row's run_at is what that attempt has left there. An attempt that was to be retried was the last one if a job was failed by
-- hand and its run_at is still the time of that retry.
--
-- $1 text[]  job ids as texts
-- Returns id, attempts; nothing for jobs that have not failed, and for those of which nothing is known.
select job.id, coalesce(ended.attempts, error.attempt)::integer as attempts
from (
  select id, attempts, locked_at, is_available, run_at, updated_at
  from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where id = any ($1::text[]::bigint[]) and not is_available and locked_at is null
) job
:include back_off
:include standing
cross join lateral (select date_part('epoch', job.run_at) - back_off.seconds as at) as left_at
left join lateral (
  select history.attempts
  from :GRAPHILE_WORKER_SCHEMA._private_py_history history
  where history.job_id = job.id and history.state = 'failed'
    and (
      date_part('epoch', history.finished_at) >= standing.failed_at - 0.001::double precision
      or abs(date_part('epoch', history.finished_at) - left_at.at) < 0.001::double precision
    )
  order by date_part('epoch', history.finished_at) desc -- not the column, whose index would be read to its end
  limit 1
) ended on true
left join lateral (
  select failed.attempt
  from :GRAPHILE_WORKER_SCHEMA._private_py_errors failed
  cross join lateral (
    select back_off.seconds
    from (select failed.attempt as attempts) as job
:include back_off
  ) as until_retry
  where failed.job_id = job.id
    and case
      when failed.is_final then
        date_part('epoch', failed.failed_at) >= standing.failed_at - 0.001::double precision
        or abs(date_part('epoch', failed.failed_at) - left_at.at) < 0.001::double precision
      else
        abs(date_part('epoch', job.run_at) - until_retry.seconds - date_part('epoch', failed.failed_at))
          < 0.001::double precision
    end
  order by date_part('epoch', failed.failed_at) desc
  limit 1
) error on true
where coalesce(ended.attempts, error.attempt) is not null

-- statement: read_in_order
-- For the rest of the transaction: read the latest rows of a large table in the order of an index, and stop at the
-- limit. For values that are not known when it plans, or without statistics, the planner expects few rows and would
-- rather read and sort them all.
select
  pg_catalog.set_config('enable_seqscan', 'off', true),
  pg_catalog.set_config('enable_bitmapscan', 'off', true),
  pg_catalog.set_config('enable_sort', 'off', true),
  pg_catalog.set_config('jit', 'off', true)

-- statement: ping
-- Tell a listener that announcements arrive.
--
-- $1 text  channel
-- $2 text  a token by which the sender knows its own
select pg_notify($1::text, pg_catalog.json_build_object('ping', $2::text)::text)

-- statement: name_tasks
-- Remember the names of tasks for the history, which outlives their rows.
--
-- $1 text[]  task identifiers
insert into :GRAPHILE_WORKER_SCHEMA._private_py_task_names (id, identifier)
select id, identifier from :GRAPHILE_WORKER_SCHEMA._private_tasks where identifier = any ($1::text[])
on conflict (id) do nothing

-- part: finished_columns
  -- The columns of FinishedJob, in the order of its fields.
  history.job_id,
  coalesce(name.identifier, task.identifier, '') as task_identifier,
  history.state, history.queue_name, history.job_key, history.priority, history.attempts, history.max_attempts,
  history.created_at, history.run_at, history.started_at, history.finished_at, history.duration, history.pool_id,
  history.flags::text, history.payload::text, history.result::text, history.error

-- part: finished_names
left join :GRAPHILE_WORKER_SCHEMA._private_py_task_names name on name.id = history.task_id
left join :GRAPHILE_WORKER_SCHEMA._private_tasks task on task.id = history.task_id

-- part: latest_finished
  select history.*
  from :GRAPHILE_WORKER_SCHEMA._private_py_history history
  where
:include finished_conditions
:include uncompleted
  order by history.finished_at desc, history.job_id desc
  limit $5::integer

-- part: latest_finished@before_13
  -- Read as the index has them, in groups of one instant; each group, such as the jobs of a batch, is sorted by id, and the
  -- limit ends the reading.
  select ended.*
  from (
    select history.finished_at, pg_catalog.array_agg(history order by history.job_id desc) as finished
    from :GRAPHILE_WORKER_SCHEMA._private_py_history history
    where
:include finished_conditions
:include uncompleted
    group by history.finished_at
    order by history.finished_at desc
    limit $5::integer
  ) instant
  cross join lateral pg_catalog.unnest(instant.finished) ended
  order by instant.finished_at desc
  limit $5

-- part: latest_of_task
    select history.*
    from :GRAPHILE_WORKER_SCHEMA._private_py_history history
    where history.task_id = any (array[wanted.id]) -- not an equality, which would make the order below redundant
      and
:include finished_conditions
:include uncompleted
    -- The leading column leaves the planner no other index: that of all tasks would be read to its end for a rare one.
    order by history.task_id desc, history.finished_at desc, history.job_id desc
    limit $5::integer

-- part: latest_of_task@before_13
    -- See `latest_finished` and, for the conditions and the order, the part for newer servers.
    select ended.*
    from (
      select history.task_id, history.finished_at, pg_catalog.array_agg(history order by history.job_id desc) as finished
      from :GRAPHILE_WORKER_SCHEMA._private_py_history history
      where history.task_id = any (array[wanted.id])
        and
:include finished_conditions
:include uncompleted
      group by history.task_id, history.finished_at
      order by history.task_id desc, history.finished_at desc
      limit $5::integer
    ) instant
    cross join lateral pg_catalog.unnest(instant.finished) ended
    order by instant.task_id desc, instant.finished_at desc
    limit $5

-- part: finished_conditions
  history.finished_at >= coalesce($1::timestamptz, '-infinity')
  and history.finished_at <= least(coalesce($2::timestamptz, 'infinity'), coalesce($3::timestamptz, 'infinity'))
  and ($3 is null or (history.finished_at, history.job_id) < ($3, $4::bigint))
  and ($6::text is null or history.state = $6::text)

-- part: uncompleted
-- The variant of this name leaves out completed jobs.

-- part: uncompleted@uncompleted
  and history.state <> 'completed' -- a literal, so that the planner can use the index over these jobs
