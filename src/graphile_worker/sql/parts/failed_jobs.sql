-- Part of the statements that look at jobs which failed permanently: the columns of `failed` that come from a job.
-- Workers do not touch updated_at: when a job failed shows in run_at, from which its back-off counts. A run_at that lies
-- further ahead is older than the failure, which was decided by hand and so noted in updated_at. In seconds since 1970,
-- because a time at the edge of what PostgreSQL can hold cannot be calculated with.
    jobs.task_id,
    left(jobs.last_error, 300) as last_error,
    greatest(
        date_part('epoch', jobs.updated_at),
        case
            when date_part('epoch', jobs.run_at) -
:include back_off
                <= date_part('epoch', now())
            then date_part('epoch', jobs.run_at) -
:include back_off
        end
    ) as failed_at
