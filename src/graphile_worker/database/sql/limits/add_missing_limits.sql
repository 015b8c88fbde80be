-- Write those limits of a worker that have no row.
--
-- $1 text[]              names
-- $2 integer[]           how many jobs may run at once, or null
-- $3 double precision[]  how many may start ...
-- $4 double precision[]  ... in a period of this many seconds, or null
-- $5 double precision[]  how many may start at once after a rest, or null
-- $6 text[]              identifiers of the tasks of each limit, as array literals
insert into :GRAPHILE_WORKER_SCHEMA._private_py_limits
  (name, code_concurrency, code_starts, code_period, code_burst, tasks)
select given.name, given.concurrency, given.starts, given.period, given.burst, given.tasks::text[]
from unnest(
  $1::text[], $2::integer[], $3::double precision[], $4::double precision[], $5::double precision[], $6::text[]
) as given (name, concurrency, starts, period, burst, tasks)
on conflict (name) do nothing
