-- The next jobs that match a filter, locked or not, without changing them: examples for the dashboard.
-- $1 to $14 as in parts/bulk_seen.
-- Returns last_id (where the next step starts), seen (matching jobs), and for each task with such jobs task_identifier,
-- jobs, asked (how many are locked), failed (how many have failed permanently) and ids; one row of zeros if none.
:include bulk_seen
changed as materialized (
    select
        seen.id, seen.task_id, seen.is_available or seen.locked_at is not null as is_available, null::json as kept,
        coalesce(seen.locked_at >= now() - interval '4 hours', false) as is_asked
    from seen
)
:include bulk_result
