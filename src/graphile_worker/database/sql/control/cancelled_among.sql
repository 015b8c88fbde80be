-- Which of these jobs were cancelled while a worker had them locked. Asked after every write of permanent failures, so it
-- reads one index and nothing else.
--
-- $1 bigint[]  job ids
-- Returns the ids.
select job_id from :GRAPHILE_WORKER_SCHEMA._private_py_cancels where job_id = any ($1::bigint[])
