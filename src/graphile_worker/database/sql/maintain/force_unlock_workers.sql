-- Unlock every job and queue that these pools have locked, and tell workers that jobs may be free (see announce_jobs).
-- $1 pool ids, as in locked_by.
select
    :GRAPHILE_WORKER_SCHEMA.force_unlock_workers(worker_ids => $1::text[]),
    pg_notify('jobs:insert', '{"r":' || random()::text || ',"count":1,"freed":true}')
