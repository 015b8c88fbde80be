-- Add what a pool has counted since it wrote last.
--
-- $1 text                 pool id
-- $2 double precision[]   minutes, in seconds since 1970
-- $3 text[]               tasks
-- $4 integer[]            completed
-- $5 integer[]            failed
-- $6 integer[]            permanently failed
-- $7 double precision[]   run seconds
-- $8 double precision[]   wait seconds
-- $9 double precision[]   longest
-- $10 text[]              histograms of run times, as text
-- $11 text[]              histograms of wait times, as text
-- $12 double precision    the time by the clock of the minutes, or null if that is the server's
-- Does not wait for the commit to reach the disk: a crash may lose the last seconds anyway.
insert into :GRAPHILE_WORKER_SCHEMA._private_py_minutes as total
  (minute, task, pool_id, completed, failed, permanently_failed, run_seconds, wait_seconds, longest, run_times, wait_times)
select
  to_timestamp(
    round((each.minute + clock.difference) / 60::double precision) * 60::double precision
  ), each.task, $1::text, each.completed, each.failed, each.permanently_failed,
  each.run_seconds, each.wait_seconds, each.longest, each.run_times::integer[], each.wait_times::integer[]
from (select pg_catalog.set_config('synchronous_commit', 'off', true)) setting
cross join (
  select coalesce(date_part('epoch', now()) - $12::double precision, 0::double precision) as difference
) clock
cross join unnest(
  $2::double precision[], $3::text[], $4::integer[], $5::integer[], $6::integer[],
  $7::double precision[], $8::double precision[], $9::double precision[], $10::text[], $11::text[]
) as each (
  minute, task, completed, failed, permanently_failed, run_seconds, wait_seconds, longest, run_times, wait_times
)
order by each.minute, each.task
on conflict (minute, task, pool_id)
:include added_statistics
