-- Lock the next jobs of limited tasks; see the function.
--
-- $1 text                pool id, written to locked_by
-- $2 text                ids of the tasks, as an array literal such as {1,2}
-- $3 integer             limit
-- $4 text[]              forbidden flags, or null
-- $5 timestamptz         the worker's time, or null for the server's
-- $6 smallint[]          ranges of priorities in ascending order, or null for all: the lowest of each ...
-- $7 smallint[]          ... and the highest
-- $8 double precision[]  the run_at to start from in each range (seconds since 1970)
-- $9 text[]              names of the limits
-- $10 boolean            whether there are wide queues
-- Returns the columns of a job, unordered; then a row without an id whose payload is the state of the limits.
select * from :GRAPHILE_WORKER_SCHEMA._private_py_get_limited_jobs(
  $1::text, $2::text, $3::integer, $4::text[], $5::timestamptz, $6::smallint[], $7::smallint[], $8::double precision[],
  $9::text[], $10::boolean
)
