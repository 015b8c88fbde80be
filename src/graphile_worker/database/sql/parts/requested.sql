union all
select kind, job_id::text, id, reason, null, null, null
from :GRAPHILE_WORKER_SCHEMA._private_py_requests
where pool_id = $1::text and answer is null
