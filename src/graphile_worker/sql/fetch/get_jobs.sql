-- Lock the next jobs for a pool: by priority, then run_at; at most one job per named queue.
--
-- $1 text         pool id, written to locked_by
-- $2 text         ids of the tasks this pool can run
-- $3 integer      how many jobs at most
-- $4 text[]       forbidden flags, or null
-- $5 timestamptz  the time to go by, or null for the server's
-- Returns the columns of a job, in no order.
--
-- Rows once locked are found again by their place (ctid): a join on the id makes the planner read the whole
-- table at middle sizes. What is locked but not taken is released untouched when the statement ends.
with recursive
:include plain
:include queued
