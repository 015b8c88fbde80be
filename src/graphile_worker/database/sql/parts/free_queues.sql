-- Whether a job of a named queue may be next: one of the queues with waiting jobs is free and has one that is due and that
-- this worker can run, or there are too many queues or jobs to check. `term` has the forbidden flags and the time.
waiting_queue (id) as (
  (
    select job_queue_id from :GRAPHILE_WORKER_SCHEMA._private_jobs
    where is_available and job_queue_id is not null
    order by job_queue_id limit 1
  )
  union all
  select (
    select job.job_queue_id from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > last.id
    order by job.job_queue_id limit 1
  )
  from waiting_queue last where last.id is not null
),
queues (may_be_next) as materialized (
  select
    pg_catalog.count(waiting.id) > 10
    or coalesce(
      bool_or(
        queue.is_available
        and exists (
          select
          from (
            select next.task_id, next.run_at, next.flags, pg_catalog.row_number() over () as nth
            from (
              select job.task_id, job.run_at, job.flags
              from :GRAPHILE_WORKER_SCHEMA._private_jobs job
              where job.is_available and job.job_queue_id = any (array[waiting.id]) -- see write_outcomes
              order by job.job_queue_id, job.priority, job.run_at
              limit 100
            ) next
          ) job
          where job.nth = 100::bigint or (
            job.run_at <= (select moment from term)
            and job.task_id = any ((select ids from task)::integer[])
            and ((select flags from term) is null or job.flags is null or not job.flags ?| (select flags from term))
          )
        )
      ),
      false
    )
  from (select id from waiting_queue limit 11) waiting
  left join :GRAPHILE_WORKER_SCHEMA._private_job_queues queue on queue.id = waiting.id
)
