-- $1: the first step; $3: seconds of a step.
select
  floor(
    (date_part('epoch', counted.at) - date_part('epoch', $1::timestamptz)) / $3::double precision
  )::integer as step,
  counted.task,
  sum(counted.completed)::bigint as completed,
  (sum(counted.failed) + sum(counted.permanently_failed))::bigint as failed,
  sum(counted.run_seconds) as run_seconds
from counted
group by 1, 2
