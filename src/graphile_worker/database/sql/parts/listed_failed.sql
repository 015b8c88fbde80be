-- The condition of the index of failed jobs (own_objects/0005_failed_index).
and not job.is_available and job.locked_at is null
