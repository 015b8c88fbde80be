  -- Seconds between a failed attempt and the next one: e to the power of the attempts made, 10 at most.
  exp(least(attempts, 10)::double precision)
