-- Part of the bulk statements that change jobs: locks those of `seen` that still match and that no worker and no other
-- transaction has locked.
:include bulk_seen
chosen as materialized (
    select job.id
    from :GRAPHILE_WORKER_SCHEMA._private_jobs as job
    where job.id = any (array(select seen.id from seen))
    and job.locked_at is null
:include matching_jobs
-- :conditions
    for update skip locked
),
