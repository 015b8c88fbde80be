-- Choose the next jobs like get_held_jobs while all have the same priority and run_at, as jobs that were added together
-- do: go on by id after the last one, and so pass the rows that other batches have locked.
--
-- Any waiting job with a key or of a named queue stops it, at one index probe each. What those jobs are is not looked at:
-- with get_tied_jobs_among_others that costs almost as much again as this fetch.
--
-- $1 integer              limit
-- $2 text                 ids of the tasks that this pool can run
-- $3 text[]               forbidden flags, or null
-- $4 timestamptz          the worker's time, or null for the server's
-- $5 smallint             the priority of the last job
-- $6 double precision     its run_at (seconds since 1970)
-- $7 bigint               its id
-- $8 smallint[]           ranges of priorities up to that one, see get_held_jobs_above_watermarks: the lowest of each, ...
-- $9 smallint[]           ... the highest ...
-- $10 double precision[]  ... and the run_at to start from
-- Returns the columns of a job as if it were locked, in run order; none if another job may be next.
with recursive
:include held_terms
:include none_keyed_or_queued
,
:include tied
