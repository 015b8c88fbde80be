-- list_finished_jobs for a server without incremental sorts. Read as the index has them, in groups of one instant; each
-- group, such as the jobs of a batch, is sorted by id, and the limit ends the reading.
-- $1 to $5 and the line of conditions are those of list_finished_jobs.
select
:include finished_columns
from (
  select ended.*
  from (
    select history.finished_at, pg_catalog.array_agg(history order by history.job_id desc) as finished
    from :GRAPHILE_WORKER_SCHEMA._private_py_history history
    where history.finished_at >= coalesce($1::timestamptz, '-infinity')
      and history.finished_at <= least(coalesce($2::timestamptz, 'infinity'), coalesce($3::timestamptz, 'infinity'))
      and ($3 is null or (history.finished_at, history.job_id) < ($3, $4::bigint))
-- :conditions
    group by history.finished_at
    order by history.finished_at desc
    limit $5::integer
  ) instant
  cross join lateral pg_catalog.unnest(instant.finished) ended
  order by instant.finished_at desc
  limit $5
) history
:include finished_names
order by history.finished_at desc, history.job_id desc
