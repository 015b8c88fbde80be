-- Names of queues, one row per id, in the order of the ids (QN1); for a track, the name of its queue.
-- $1 text[]  ids of queues; an id may occur more than once
-- Returns queue_name text, null where there is no such queue.
select pg_catalog.regexp_replace(job_queues.queue_name, ' \[[1-9][0-9]*\]$', '') as queue_name
from pg_catalog.unnest($1::text[]::integer[]) with ordinality as wanted (id, position)
left join :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues on job_queues.id = wanted.id
order by wanted.position;
