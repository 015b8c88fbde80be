-- Lock the next jobs like get_jobs_beyond while no job of a named queue can be next; takes nothing if one may be.
-- It is to that what get_plain_jobs is to get_jobs.
--
-- $1 text                pool id, written to locked_by
-- $2 text                ids of the tasks this pool can run
-- $3 integer             how many jobs at most
-- $4 text[]              forbidden flags, or null
-- $5 timestamptz         the time to go by, or null for the server's
-- $6 smallint[]          ranges of priorities in ascending order: the lowest of each ...
-- $7 smallint[]          ... and the highest
-- $8 double precision[]  from which run_at on to read each range (seconds since 1970)
-- Returns the columns of a job, in no order.
with recursive
:include plain_beyond
:include take_plain
