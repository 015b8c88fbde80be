-- Who holds jobs and since when, for the doctor. One pass over the jobs that are not waiting.
-- $1 age in seconds from which a lock counts as old
-- Returns for each holder: locked_by, jobs, old_jobs, and age (seconds since its oldest lock was taken).
select
    jobs.locked_by,
    count(*) as jobs,
    count(*) filter (where jobs.locked_at < now() - $1::double precision * interval '1 second') as old_jobs,
    date_part('epoch', now()) - date_part('epoch', min(jobs.locked_at)) as age
from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
where not jobs.is_available and jobs.locked_at is not null
group by jobs.locked_by
order by min(jobs.locked_at)
limit 1000
