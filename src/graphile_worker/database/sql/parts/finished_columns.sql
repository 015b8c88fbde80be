  -- The columns of FinishedJob, in the order of its fields.
  history.job_id,
  coalesce(name.identifier, task.identifier, '') as task_identifier,
  history.state, history.queue_name, history.job_key, history.priority, history.attempts, history.max_attempts,
  history.created_at, history.run_at, history.started_at, history.finished_at, history.duration, history.pool_id,
  history.flags::text, history.payload::text, history.result::text, history.error
