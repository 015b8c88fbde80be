-- End the pause of a task.
--
-- $1 text  its identifier; empty for the pause of every task
-- Returns whether it was paused.
with
resumed as (
  delete from :GRAPHILE_WORKER_SCHEMA._private_py_pauses where task = $1::text
  returning until
),
notified as materialized (select pg_notify('worker:py', '{"pauses":1}') from resumed)
select exists (select from resumed where until is null or until > now()) as was_paused
from (select count(*) from notified) always
