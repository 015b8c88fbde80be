-- The columns of `failed`, for statements about permanently failed jobs.
    jobs.task_id,
    left(jobs.last_error, 300) as last_error,
:include failed_at
    as failed_at
