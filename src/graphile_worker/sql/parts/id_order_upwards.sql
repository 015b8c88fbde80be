        job.id
