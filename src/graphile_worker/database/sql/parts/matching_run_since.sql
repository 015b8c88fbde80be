and job.run_at >= :value::timestamptz
