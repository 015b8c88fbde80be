  -- The attempts of a `job` after this one: all of them if it is given up, one less if it is snoozed.
  case
    when failure.decision = 'give_up' then greatest(job.attempts,
:include new_max_attempts
    )
    when failure.decision = 'snooze' and not
:include cut_off
      then greatest(0, job.attempts - 1)
    else job.attempts
  end
