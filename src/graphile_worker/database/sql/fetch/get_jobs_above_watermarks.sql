-- Lock the next jobs like get_jobs, but read those without a queue from given watermarks on.
--
-- Used for a while after get_jobs was slow because it had to read past very many rows that it cannot take: jobs of tasks
-- that this pool does not have, or dead rows that a long transaction keeps from being vacuumed. Priorities with a
-- watermark are read from there, and the gaps between them from the start. The variant `urgent` takes no job of a queue
-- either that is worse than the last range.
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
:include queued
:include take_chosen
