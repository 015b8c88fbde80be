  -- The columns of AttemptError, in the order of its fields.
  error.job_id, error.attempt, coalesce(name.identifier, task.identifier, '') as task_identifier, error.failed_at,
  error.duration, error.is_final, error.error_type, error.message, error.traceback, error.fingerprint, error.pool_id,
  error.version
