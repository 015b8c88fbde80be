-- Who has locked jobs and since when, for the doctor, where the table of workers is missing. Scans the jobs table.
-- Returns for each holder: locked_by, jobs, and age (seconds since its oldest lock was taken).
select
    jobs.locked_by,
    count(*) as jobs,
    date_part('epoch', now()) - date_part('epoch', min(jobs.locked_at)) as age
from :GRAPHILE_WORKER_SCHEMA._private_jobs as jobs
where not jobs.is_available and jobs.locked_at is not null
group by jobs.locked_by
order by min(jobs.locked_at)
limit 1000
