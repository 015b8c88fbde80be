and job.attempts >= :value::smallint
