-- $1: the first step; $3: seconds of a step. Several rows of a step and task are added up by the reader: one row is what
-- there usually is, and sums of arrays would take most of the time.
select
  floor(
    (date_part('epoch', counted.at) - date_part('epoch', $1::timestamptz)) / $3::double precision
  )::integer as step,
  counted.task,
  counted.longest,
  counted.run_times,
  counted.wait_times
from counted
