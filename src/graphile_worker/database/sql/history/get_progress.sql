-- The progress of a job.
--
-- $1 bigint  job id
-- Returns share, note, data, updated_at.
select share, note, data::text, updated_at
from :GRAPHILE_WORKER_SCHEMA._private_py_progress where job_id = $1::bigint
