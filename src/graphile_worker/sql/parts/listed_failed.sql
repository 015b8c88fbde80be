-- As the index of failed jobs says it (own_objects/0005_failed_index).
and not job.is_available and job.locked_at is null
