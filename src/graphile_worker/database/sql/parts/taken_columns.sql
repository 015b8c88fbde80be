  -- The columns of a fetched job, in the order of Job's fields. As few as possible, for there are tens of thousands per
  -- second: the worker knows the pool's id and the task's identifier.
  id, payload::text, priority, date_part('epoch', run_at), attempts, max_attempts, last_error,
  date_part('epoch', nullif(created_at, run_at)), date_part('epoch', nullif(updated_at, created_at)), -- usually equal
  key, date_part('epoch', locked_at), revision, flags::text, task_id, job_queue_id
