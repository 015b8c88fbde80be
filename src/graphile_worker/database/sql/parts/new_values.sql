    -- What `job` gets for a `failure`. A job that is not retried always gets the time of the back-off, whatever delay its
    -- task wants: failed_at goes by it.
    last_error = case
      when failure.decision = 'snooze' and not
:include cut_off
        then job.last_error
      else failure.message
    end,
    payload = coalesce(failure.new_payload::json, job.payload),
    max_attempts =
:include new_max_attempts
    ,
    attempts =
:include new_attempts
    ,
    run_at = greatest(now(), job.run_at) + interval '1 second' * case
      when failure.delay is not null and
:include new_attempts
        <
:include new_max_attempts
        then failure.delay
      else exp(least(
:include new_attempts
        , 10)::double precision)
    end,
    locked_by = null,
    locked_at = null
