and (job.priority, job.run_at, job.id) > ($12::integer, to_timestamp($13::float8), $14::bigint)
