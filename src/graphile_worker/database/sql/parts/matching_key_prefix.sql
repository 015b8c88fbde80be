and pg_catalog.starts_with(job.key, :value::text)
