-- Which of these jobs have ended since a time without completing, as far as they were kept.
-- $1 job ids, $2 the time.
-- Returns, for each, its latest end: id, state and last_error.
select wanted.id, last_finished.state, pg_catalog."left"(last_finished.error, 2000) as last_error
from pg_catalog.unnest($1::bigint[]) as wanted (id)
cross join lateral (
    select history.state, history.error
    from :GRAPHILE_WORKER_SCHEMA._private_py_history as history
    where history.job_id = wanted.id and history.finished_at >= $2::timestamptz
    order by date_part('epoch', history.finished_at) desc -- not the column, whose index would be read to its end
    limit 1
) as last_finished
where last_finished.state <> 'completed'
order by wanted.id
