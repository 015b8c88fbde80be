  -- The number that holds for a failed `job`: that of its task, if the row has the default, because the add did not know
  -- the task's options. A job whose key was removed or reused while it ran has no attempts left, and gets none here.
  case
    when job.max_attempts <> 25::smallint or job.key is null and job.attempts >= job.max_attempts
      and job.updated_at > job.locked_at and job.updated_at > job.created_at then job.max_attempts
    else coalesce(failure.own_max_attempts::smallint, job.max_attempts)
  end
