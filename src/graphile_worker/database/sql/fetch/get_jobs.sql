-- Lock the next jobs for a pool: by priority, then run_at; at most one job per named queue.
--
-- $1 text         pool id, written to locked_by
-- $2 text         ids of the tasks that this pool can run
-- $3 integer      limit
-- $4 text[]       forbidden flags, or null
-- $5 timestamptz  the worker's time, or null for the server's
-- Returns the columns of a job, unordered.
--
-- Locked rows are updated by their ctid: a join on the id makes the planner read the whole table at middle sizes. Rows
-- that are locked but not taken are unlocked unchanged when the statement ends.
with recursive
:include plain
:include queued
:include take_chosen
