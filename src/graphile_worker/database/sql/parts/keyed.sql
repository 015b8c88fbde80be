-- Part of every fetch of a held batch: jobs with a key that come between those of the batch. A session that replaces or
-- removes such a job must not wait for the batch, so it locks none of them. An ordinary fetch takes those that come before
-- the batch's last job (get_keyed_jobs). For that to be few, the batch ends before the last of them if more than a tenth
-- of it have one, and has no job at all if too many tasks and priorities have some.
:include keyed_steps
keyed as materialized (
  select found.priority, found.run_at
  from (select task_id, priority from keyed_step limit 50) step
  cross join lateral (
    select job.priority, job.run_at
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is null and job.key is not null
      and job.task_id = any (array[step.task_id]) -- see write_outcomes
      and job.priority = step.priority and job.run_at <= coalesce($4::timestamptz, statement_timestamp())
      and ($3::text[] is null or job.flags is null or not job.flags ?| $3::text[])
    order by job.task_id, job.priority, job.run_at
    limit $1::integer / 10 + 1
  ) found
  where step.task_id = any ((select ids from task)::integer[])
  order by found.priority, found.run_at
  limit $1 / 10 + 1
),
first_keyed (place) as materialized (
  select priority::text || ' ' || date_part('epoch', run_at)::text from keyed limit 1
),
last_keyed (priority, run_at) as materialized (
  select (-32768)::smallint, '-infinity'::timestamptz
  where (select pg_catalog.count(task_id) from (select task_id from keyed_step limit 51) step) > 50
  union all
  (select priority, run_at from keyed offset $1 / 10 limit 1)
  limit 1
),
