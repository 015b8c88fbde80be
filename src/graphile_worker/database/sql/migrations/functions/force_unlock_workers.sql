-- force_unlock_workers(worker_ids): clear the locks of these pools on jobs and queues; used attempts still count.

create or replace function :GRAPHILE_WORKER_SCHEMA.force_unlock_workers(worker_ids text[])
returns void
language sql
as $body$
    update :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
    set locked_at = null, locked_by = null
    where jobs.locked_by = any (force_unlock_workers.worker_ids);

    update :GRAPHILE_WORKER_SCHEMA._private_job_queues as job_queues
    set locked_at = null, locked_by = null
    where job_queues.locked_by = any (force_unlock_workers.worker_ids);
$body$;
