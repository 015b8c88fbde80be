and job.priority >= :value::smallint
