        and (job.priority, job.run_at) >= (
            first_of_priority.priority,
            case when first_of_priority.priority = $2::integer then greatest(now(), to_timestamp($3::float8)) else now() end
        )
        and (job.priority, job.run_at) <= (first_of_priority.priority, 'infinity'::timestamptz)
        and job.run_at > now()
