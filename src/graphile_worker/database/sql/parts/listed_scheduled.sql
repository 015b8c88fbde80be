and job.is_available = true and job.run_at > now()
