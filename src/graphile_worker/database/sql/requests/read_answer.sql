-- The answer to a request for a stack.
--
-- $1 bigint  id of the request
-- Returns answer (JSON text, or null) and now (seconds since 1970); no row if the request is gone.
select answer::text as answer, date_part('epoch', now()) as now
from :GRAPHILE_WORKER_SCHEMA._private_py_requests
where id = $1::bigint
