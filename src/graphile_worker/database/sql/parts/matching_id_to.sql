and job.id <= :value::bigint
