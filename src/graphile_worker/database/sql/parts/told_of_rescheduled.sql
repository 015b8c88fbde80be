-- Part of the statements that reschedule jobs: notifies workers of those in `rescheduled` that are ready (see announce_jobs).
told as materialized (
    select pg_notify(
        'jobs:insert', pg_catalog.json_build_object('r', random(), 'count', count(*), 'freed', true)::text
    )
    from rescheduled
    where rescheduled.is_available and rescheduled.run_at <= now()
    having count(*) > 0
)
