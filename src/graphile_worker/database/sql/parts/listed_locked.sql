and job.locked_at is not null
