-- Write the limits of a worker that starts. The last start wins; bounds that operators have set are not touched.
--
-- $1 text[]              names
-- $2 integer[]           how many jobs may run at once, or null
-- $3 double precision[]  how many may start ...
-- $4 double precision[]  ... in a period of this many seconds, or null
-- $5 double precision[]  how many may start at once after a rest, or null
-- $6 text[]              identifiers of the tasks of each limit, as array literals
insert into :GRAPHILE_WORKER_SCHEMA._private_py_limits as limits
  (name, code_concurrency, code_starts, code_period, code_burst, tasks)
select given.name, given.concurrency, given.starts, given.period, given.burst, given.tasks::text[]
from unnest(
  $1::text[], $2::integer[], $3::double precision[], $4::double precision[], $5::double precision[], $6::text[]
) as given (name, concurrency, starts, period, burst, tasks)
order by given.name -- the same order in every worker, so that two of them cannot deadlock
on conflict (name) do update
set
  code_concurrency = excluded.code_concurrency,
  code_starts = excluded.code_starts,
  code_period = excluded.code_period,
  code_burst = excluded.code_burst,
  tasks = array(select pg_catalog.unnest(limits.tasks) union select pg_catalog.unnest(excluded.tasks) order by 1),
  started_at = now()
