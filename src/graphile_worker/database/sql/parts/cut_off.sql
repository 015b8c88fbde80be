  -- Whether the key of a running `job` was removed or used again: then it has no attempts left and does not run again.
  (
    job.key is null and job.attempts >= job.max_attempts and job.updated_at > job.locked_at
    and job.updated_at > job.created_at
  )
