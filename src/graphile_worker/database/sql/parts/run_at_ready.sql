        and (job.priority, job.run_at) >= (
            first_of_priority.priority,
            case when first_of_priority.priority = $2::integer then to_timestamp($3::float8) else '-infinity'::timestamptz end
        )
        and (job.priority, job.run_at) <= (first_of_priority.priority, now())
