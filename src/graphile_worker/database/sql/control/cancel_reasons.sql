-- Which of these jobs were cancelled while a worker had them locked.
--
-- $1 text[]  job ids as texts
-- Returns job_id and reason.
select job_id, reason from :GRAPHILE_WORKER_SCHEMA._private_py_cancels where job_id = any ($1::text[]::bigint[])
