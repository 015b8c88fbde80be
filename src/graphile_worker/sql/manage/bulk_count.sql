-- One step of a bulk change that is only a dry run: count matching jobs that are not locked.
-- $1 to $14 as in parts/bulk_seen.
-- Returns last_id (where the next step starts), seen (matching jobs, locked or not), and for each task with unlocked jobs
-- task_identifier, jobs and failed (how many have failed permanently); one row of zeros if none.
:include bulk_seen
changed as materialized (
    select null::bigint as id, seen.task_id, seen.is_available, null::json as kept
    from seen
    where seen.locked_at is null
)
:include bulk_result
