  -- The name of the queue of `job`, for tracks that of their home; most jobs have none.
  case
    when job.job_queue_id is not null
      then (
        select pg_catalog.regexp_replace(queue.queue_name, ' \[[1-9][0-9]*\]$', '') from :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
        where queue.id = job.job_queue_id
      )
  end
