-- One step of a bulk change that is only a dry run: count matching jobs that it would change.
-- $1 to $14 as in parts/bulk_seen, $15 whether it changes locked jobs too.
-- Returns last_id (where the next step starts), seen (matching jobs, locked or not), and for each task with such jobs
-- task_identifier, jobs, asked (how many are locked) and failed (how many have failed permanently); one row of zeros if
-- none.
:include bulk_seen
changed as materialized (
    select
        null::bigint as id, seen.task_id, seen.is_available or seen.locked_at is not null as is_available,
        null::json as kept, coalesce(seen.locked_at >= now() - interval '4 hours', false) as is_asked
    from seen
    where seen.locked_at is null or $15::boolean
)
:include bulk_result
