-- Unlock every job and queue that these pools have locked.
-- $1 pool ids, as in locked_by.
select :GRAPHILE_WORKER_SCHEMA.force_unlock_workers(worker_ids => $1::text[])
