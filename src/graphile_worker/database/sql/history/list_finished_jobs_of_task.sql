-- Finished jobs of one task, the latest first. See list_finished_jobs for $1 to $5.
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
    select history.*
    from :GRAPHILE_WORKER_SCHEMA._private_py_history history
    where history.task_id = any (array[wanted.id]) -- not an equality, which would make the order below redundant
      and history.finished_at >= coalesce($1::timestamptz, '-infinity')
      and history.finished_at <= least(coalesce($2::timestamptz, 'infinity'), coalesce($3::timestamptz, 'infinity'))
      and ($3 is null or (history.finished_at, history.job_id) < ($3, $4::bigint))
-- :conditions
    -- The leading column leaves the planner no other index: that of all tasks would be read to its end for a rare one.
    order by history.task_id desc, history.finished_at desc, history.job_id desc
    limit $5::integer
  ) found
  order by found.finished_at desc, found.job_id desc
  limit $5
) history
:include finished_names
order by history.finished_at desc, history.job_id desc
