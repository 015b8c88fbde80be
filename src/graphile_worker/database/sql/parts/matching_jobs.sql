-- The conditions of a JobFilter on `job`, except those that an index serves (parts/listed_...).
-- $2 task identifier, $3 queue name, $4 job key, $5 pool id that has locked the job, $6 flag, $7 part of the last error,
-- $8 and $9 created_at from and before, $10 and $11 the same for the time of the permanent failure; null means any.
and ($2::text is null or job.task_id = (
    select named.id from :GRAPHILE_WORKER_SCHEMA._private_tasks as named where named.identifier = $2::text
))
and ($3::text is null or job.job_queue_id = any(array(
    select named.id from :GRAPHILE_WORKER_SCHEMA._private_job_queues as named
    where named.queue_name = $3::text
    or pg_catalog.regexp_replace(named.queue_name, ' \[[1-9][0-9]*\]$', '') = $3::text -- a track of the queue
)))
and ($4::text is null or job.key = $4::text)
and ($5::text is null or job.locked_by = $5::text)
and ($6::text is null or job.flags ? $6::text)
and ($7::text is null or pg_catalog.strpos(lower(job.last_error), lower($7::text)) > 0)
and ($8::timestamptz is null or job.created_at >= $8::timestamptz)
and ($9::timestamptz is null or job.created_at < $9::timestamptz)
and ($10::timestamptz is null or
:include failed_at
    >= date_part('epoch', $10::timestamptz))
and ($11::timestamptz is null or
:include failed_at
    < date_part('epoch', $11::timestamptz))
