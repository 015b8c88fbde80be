    -- When a permanently failed job failed, in seconds since 1970. Workers do not touch updated_at: the time of a failure
    -- is run_at minus the back-off. If that is in the future, the job was failed by hand, which sets updated_at.
    -- In seconds, because arithmetic with times at the edge of PostgreSQL's range fails.
    greatest(
        date_part('epoch', updated_at),
        case
            when date_part('epoch', run_at) -
:include back_off
                <= date_part('epoch', now())
            then date_part('epoch', run_at) -
:include back_off
        end
    )
