-- Lock the next jobs like get_jobs if no job of a named queue can be next; lock none otherwise.
--
-- The fast path for the usual case: get_jobs would cost an idle worker a fifth of a millisecond more, and milliseconds
-- if many jobs wait for a busy queue.
--
-- $1 text         pool id, written to locked_by
-- $2 text         ids of the tasks that this pool can run
-- $3 integer      limit
-- $4 text[]       forbidden flags, or null
-- $5 timestamptz  the worker's time, or null for the server's
-- Returns the columns of a job, unordered.
with recursive
:include plain
:include take_plain
