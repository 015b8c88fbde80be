-- Waiting jobs of some queues in a sample of the jobs table.
--
-- $1 integer[]  queue ids
-- $2 real       the percentage of the table's pages to read; 100 counts all
-- Returns id and jobs (as counted, not extrapolated), without queues of which the sample has no job.
select jobs.job_queue_id as id, count(*) as jobs
from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs tablesample system ($2::float4)
where jobs.is_available
and jobs.job_queue_id = any ($1::integer[])
group by jobs.job_queue_id
