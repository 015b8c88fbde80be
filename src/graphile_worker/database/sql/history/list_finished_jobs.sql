-- Finished jobs, the latest first.
--
-- $1 timestamptz  the earliest end, or null
-- $2 timestamptz  the latest end, or null
-- $3 timestamptz  the end of the last job of the previous page, or null
-- $4 bigint       its id
-- $5 integer      at most this many
-- The line of conditions is replaced; see history/records.py.
select
:include finished_columns
from (
  select history.*
  from :GRAPHILE_WORKER_SCHEMA._private_py_history history
  where history.finished_at >= coalesce($1::timestamptz, '-infinity')
    and history.finished_at <= least(coalesce($2::timestamptz, 'infinity'), coalesce($3::timestamptz, 'infinity'))
    and ($3 is null or (history.finished_at, history.job_id) < ($3, $4::bigint))
-- :conditions
  order by history.finished_at desc, history.job_id desc
  limit $5::integer
) history
:include finished_names
order by history.finished_at desc, history.job_id desc
