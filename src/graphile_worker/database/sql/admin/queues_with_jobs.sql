-- Queues that have waiting jobs, by id: a walk over an index of our own, which reads a few pages for each. Needs
-- own_objects/0002_queue_indexes.
--
-- $1 integer  those after this queue id
-- $2 integer  how many at most
-- Returns id.
with recursive walk as (
  (
    select job.job_queue_id as id
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > $1::integer
    order by job.job_queue_id
    limit 1
  )
  union all
  select (
    select job.job_queue_id
    from :GRAPHILE_WORKER_SCHEMA._private_jobs job
    where job.is_available and job.job_queue_id is not null and job.job_queue_id > walk.id
    order by job.job_queue_id
    limit 1
  )
  from walk
  where walk.id is not null
)
select id from walk where id is not null limit $2::integer
