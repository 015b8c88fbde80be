-- All that the history has of a job, the latest first: a permanently failed job that was retried has several.
--
-- $1 bigint  job id
select
:include finished_columns
from :GRAPHILE_WORKER_SCHEMA._private_py_history history
:include finished_names
where history.job_id = $1::bigint
order by history.finished_at desc
