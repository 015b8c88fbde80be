  -- The name of the queue of `job`; most jobs have none.
  case
    when job.job_queue_id is not null
      then (
        select queue.queue_name from :GRAPHILE_WORKER_SCHEMA._private_job_queues queue
        where queue.id = job.job_queue_id
      )
  end
