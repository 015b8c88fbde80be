-- list_finished_jobs_of_task for a server without incremental sorts; see list_finished_jobs_before_13.
--
-- $6 text  task identifier; a task whose row was deleted and added again has several ids
select
:include finished_columns
from (
  select found.*
  from (
    select id from :GRAPHILE_WORKER_SCHEMA._private_py_task_names where identifier = $6::text
    union
    select id from :GRAPHILE_WORKER_SCHEMA._private_tasks where identifier = $6::text
  ) wanted
  cross join lateral (
    select ended.*
    from (
      select history.task_id, history.finished_at, pg_catalog.array_agg(history order by history.job_id desc) as finished
      from :GRAPHILE_WORKER_SCHEMA._private_py_history history
      where history.task_id = any (array[wanted.id]) -- not an equality, which would make the order below redundant
        and history.finished_at >= coalesce($1::timestamptz, '-infinity')
        and history.finished_at <= least(coalesce($2::timestamptz, 'infinity'), coalesce($3::timestamptz, 'infinity'))
        and ($3 is null or (history.finished_at, history.job_id) < ($3, $4::bigint))
-- :conditions
      group by history.task_id, history.finished_at
      -- The leading column leaves the planner no other index: that of all tasks would be read to its end for a rare one.
      order by history.task_id desc, history.finished_at desc
      limit $5::integer
    ) instant
    cross join lateral pg_catalog.unnest(instant.finished) ended
    order by instant.task_id desc, instant.finished_at desc
    limit $5
  ) found
  order by found.finished_at desc, found.job_id desc
  limit $5
) history
:include finished_names
order by history.finished_at desc, history.job_id desc
