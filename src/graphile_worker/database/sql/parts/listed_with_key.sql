and job.key = $4::text
