-- Lock jobs of a held batch whose session ends as a fetch would have done; see keep_held_jobs. Skips rows that the
-- session, or another one that waited, still has locked.
--
-- $1 text         pool id
-- $2 bigint[]     job ids
-- $3 timestamptz  the worker's time, or null for the server's
-- Returns their ids.
update :GRAPHILE_WORKER_SCHEMA._private_jobs job
set attempts = job.attempts + 1, locked_by = $1::text, locked_at = coalesce($3::timestamptz, now())
where job.id = any (
  array(
    select held.id from :GRAPHILE_WORKER_SCHEMA._private_jobs held
    where held.id = any ($2::bigint[]) and held.locked_at is null
    for no key update skip locked
  )
)
returning job.id
