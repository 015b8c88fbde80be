  -- The columns of a job that a fetch has taken, as few as will do, because they pass by the ten thousand: the pool's id
  -- and the task's name are known to the worker. The order is that of Job's fields.
  id, payload::text, priority, date_part('epoch', run_at), attempts, max_attempts, last_error,
  date_part('epoch', nullif(created_at, run_at)), date_part('epoch', nullif(updated_at, created_at)), -- most are the same
  key, date_part('epoch', locked_at), revision, flags::text, task_id, job_queue_id
