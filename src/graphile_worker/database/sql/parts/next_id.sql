        job.id < $12::bigint
