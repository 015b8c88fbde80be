-- Answer a request for a stack.
--
-- $1 bigint  id of the request
-- $2 text    the answer (JSON)
update :GRAPHILE_WORKER_SCHEMA._private_py_requests set answer = $2::text::jsonb where id = $1::bigint
