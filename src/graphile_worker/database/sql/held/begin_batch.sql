-- Begin the transaction of a held batch, in one round trip.
--
-- Its end deletes and updates rows. The lock for that comes first. If this transaction began with a weaker lock,
-- another session (REINDEX, for example) could get a lock that conflicts with the stronger one before the batch ends, and
-- the two would deadlock.
begin;
lock table :GRAPHILE_WORKER_SCHEMA._private_jobs in row exclusive mode
