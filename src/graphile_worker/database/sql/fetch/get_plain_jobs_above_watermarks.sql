-- Lock the next jobs like get_plain_jobs, but from given watermarks on: the fast path of get_jobs_above_watermarks.
--
-- $1 text                pool id, written to locked_by
-- $2 text                ids of the tasks that this pool can run
-- $3 integer             limit
-- $4 text[]              forbidden flags, or null
-- $5 timestamptz         the worker's time, or null for the server's
-- $6 smallint[]          ranges of priorities in ascending order: the lowest of each ...
-- $7 smallint[]          ... and the highest
-- $8 double precision[]  the run_at to start from in each range (seconds since 1970)
-- Returns the columns of a job, unordered.
with recursive
:include plain_above_watermarks
:include take_plain
