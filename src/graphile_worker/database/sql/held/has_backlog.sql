-- Whether many jobs of the usual priority are ready: a worker that starts beside them holds batches soon.
--
-- $1 bigint  how many are many
select count(*) = $1::bigint
from (
  select
  from :GRAPHILE_WORKER_SCHEMA._private_jobs
  where is_available and job_queue_id is null and priority = 0::smallint and run_at <= now()
  limit $1
) waiting
