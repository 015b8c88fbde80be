-- Lock the next jobs like get_jobs while no job of a named queue can be next; takes nothing if one may be.
--
-- The short way for the usual case: the whole statement would cost an idle worker a fifth of a millisecond more,
-- and milliseconds where many jobs wait for a queue that is busy.
--
-- $1 text         pool id, written to locked_by
-- $2 text         ids of the tasks this pool can run
-- $3 integer      how many jobs at most
-- $4 text[]       forbidden flags, or null
-- $5 timestamptz  the time to go by, or null for the server's
-- Returns the columns of a job, in no order.
with recursive
:include plain
:include take_plain
