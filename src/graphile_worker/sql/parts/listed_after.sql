and (job.priority, job.run_at, job.id) > ($6::integer, to_timestamp($7::float8), $8::bigint)
