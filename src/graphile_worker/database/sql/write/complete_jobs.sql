-- Delete completed jobs without a named queue.
--
-- $1 text      pool id
-- $2 bigint[]  job ids
-- Returns no row if all were deleted, else one row with the ids of those that were not.
with
:include completed
:include missing
