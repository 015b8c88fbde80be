        job.id desc
