-- Lock the next jobs like get_jobs, but of those without a queue only what lies beyond given marks.
--
-- Used for a while after get_jobs turned out slow, because it had to read past very many rows that it cannot
-- take: jobs of tasks that this pool does not have, or dead rows that a long transaction keeps from being
-- removed. Known priorities are read from their mark on, and the gaps between them from their beginning.
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
:include queued
