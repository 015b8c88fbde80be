-- The columns of `failed`, for statements about permanently failed jobs. Workers do not touch updated_at: the time of
-- a failure is run_at minus the back-off. If that is in the future, the job was failed by hand, which sets updated_at.
-- In seconds since 1970, because arithmetic with times at the edge of PostgreSQL's range fails.
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
