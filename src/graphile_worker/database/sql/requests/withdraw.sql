-- Delete a request.
--
-- $1 bigint  its id
delete from :GRAPHILE_WORKER_SCHEMA._private_py_requests where id = $1::bigint
